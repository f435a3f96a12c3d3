"""A run's own settled offset: where its gap lies when nothing drifts, as far as each block could know it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from service.compare.gap import Blocks
from service.compare.medians import median
from service.compare.noise import WANDER_BLOCKS

from .inputs import Floats, Ints

SPAN = (0.03, 0.25)  # of the reference's tokens: the blocks an offset is measured on
LAG = 0.015  # of the reference's tokens: the newest blocks stay out, or a slow drift would hide in its own baseline
LAG_BLOCKS = 2
FEWEST = 4  # blocks
GROWTH = 1.25  # the offset is taken anew whenever a quarter more blocks are at hand


@dataclass(frozen=True, slots=True)
class Offsets:
    """Per block (m,): the offset as known then (NaN: not yet), and its standard error."""

    value: Floats
    error: Floats

    @property
    def newest(self) -> float | None:
        """The offset as known now."""
        return float(self.value[-1]) if len(self.value) and not np.isnan(self.value[-1]) else None

    def frozen(self, block: int) -> Offsets:
        """The same up to `block`, and kept as it was there for all blocks after it."""
        value, error = self.value.copy(), self.error.copy()
        value[block:], error[block:] = value[block], error[block]
        return Offsets(value, error)

    def until(self, blocks: int) -> Offsets:
        """The first `blocks` of them."""
        return Offsets(self.value[:blocks], self.error[:blocks])


def place_of(blocks: Blocks, reference_tokens: Floats) -> Floats:
    """Where blocks end in the reference's token range, 0 to 1, (m,)."""
    if len(reference_tokens) < 2:
        return np.ones(len(blocks))
    return (blocks.last_tokens - reference_tokens[0]) / (reference_tokens[-1] - reference_tokens[0])


def settled_offsets(mean: Floats, place: Floats, sd: Floats) -> Offsets:
    """Medians of the block means (m,) between 3 % and 25 % of the reference, without the newest 1.5 %. Causal. `sd`
    (m,) is of a healthy block mean.

    The error of n blocks is sqrt(min(1, 12 / n)) times the root mean square of their sd."""
    m = len(mean)
    nothing = Offsets(np.full(m, np.nan), np.full(m, np.nan))
    used = np.flatnonzero((place >= SPAN[0]) & (place <= SPAN[1]))
    if m == 0 or len(used) < FEWEST:
        return nothing
    old = np.minimum(np.searchsorted(place, place - LAG, side="right"), np.arange(m) - LAG_BLOCKS + 1)
    at_hand: Ints = np.searchsorted(used, np.maximum(old, 0), side="left").astype(np.int64)
    squares = np.cumsum(sd[used] ** 2)
    counts, n = list[int](), float(FEWEST)
    while n <= len(used):
        counts.append(int(n))
        n = max(n * GROWTH, n + 1.0)
    values = [math.nan, *(median(mean[used[:count]]) for count in counts)]
    errors = [math.nan, *(math.sqrt(min(1.0, WANDER_BLOCKS / count) * squares[count - 1] / count) for count in counts)]
    newest = np.searchsorted(counts, at_hand, side="right")
    return Offsets(np.array(values)[newest], np.array(errors)[newest])
