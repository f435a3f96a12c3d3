"""Comparing two runs that read the same batches: pair by pair, where the noise of a batch cancels.

What is left of the difference is small but not white: a nearly constant offset per run and a slow wander. So a change
of the gap is judged by how much such changes scatter, among sibling runs at the same step or in the run's own past, and
never by step noise over root n alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .noise import MAD_TO_SD

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 25  # pairs under one robust mean; longer means gain little against the wander
BLOCKS = 4  # before and after: a change is the mean of 100 pairs minus that of the 100 before
MEMORY = 40  # changes of the run's own past that tell how much they scatter
MIN_PAST = 12
OWN_PAST_INFLATION = 1.3  # overlapping changes hold few independent ones: their spread is known to about 30 %
MIN_SIBLINGS = 3
SD_PER_LIMIT = 3.75


@dataclass(frozen=True, slots=True)
class PairedGap:
    """The gap of a run to its reference over equal batches, one entry per 25 pairs (m,), in the metric's unit.

    `steps`: the last step that counts. `level`: mean gap of the newest 100 pairs. `change`: that minus the mean of the
    100 before. `se`: standard deviation of `change` in healthy runs, NaN where it is not known yet. `runs`: how many
    siblings that rests on (0: on the run's own past). Entry i depends on pairs up to `steps[i]` only."""

    steps: Ints
    level: Floats
    change: Floats
    se: Floats
    runs: int

    @property
    def beyond(self) -> Floats:
        """|change| in units of what a healthy run stays within (3.75 sd): above 1 is a drift; NaN where not known."""
        return np.abs(self.change) / (SD_PER_LIMIT * self.se)

    @property
    def smallest(self) -> Floats:
        """The smallest change that would show at each entry (m,)."""
        return SD_PER_LIMIT * self.se

    def __len__(self) -> int:
        return len(self.steps)


def paired_gap(steps: Ints, run: Floats, reference: Floats, siblings: Sequence[Floats] = ()) -> PairedGap:
    """The paired gap. `run`, `reference` and each of `siblings` are (n,), parallel to `steps` (n,), NaN where missing.

    With three siblings or more (of the same data order) the run is compared with the median of reference and siblings,
    and `se` is the root mean square of the siblings' own changes, each against the median of the others, at the same
    steps and three entries around; the reference's own wander is then averaged out. Without, `se` comes from the run's
    past changes, and never below what the scatter within 25 pairs gives."""
    pool = [reference, *siblings]
    if len(siblings) < MIN_SIBLINGS:
        return _from_own_past(steps, run - reference)
    gap = run - _median(pool)
    # Causal: the siblings' changes are taken at the same entries, and they were complete before the run began.
    others = [_change(_block_means(one - _median([*pool[:i], *pool[i + 1 :]]))) for i, one in enumerate(pool)]
    square = np.nanmean(np.stack([change for _, change in others]) ** 2, axis=0)
    around = np.stack([np.roll(square, k) for k in range(-3, 4)])
    for k in range(-3, 0):
        around[k + 3, k:] = np.nan
    for k in range(1, 4):
        around[k + 3, :k] = np.nan
    means = _block_means(gap)
    level, change = _change(means)
    se = np.sqrt(np.nanmean(around, axis=0)) if len(change) else np.zeros(0)
    return PairedGap(_last_steps(steps, len(change)), level, change, np.where(se > 0.0, se, np.nan), len(siblings))


def _from_own_past(steps: Ints, gap: Floats) -> PairedGap:
    means = _block_means(gap)
    level, change = _change(means)
    se = np.full(len(change), np.nan)
    within = _block_noise(gap)
    for i in range(MIN_PAST + BLOCKS, len(change)):
        past = change[max(0, i - MEMORY - BLOCKS) : i - BLOCKS]
        past = past[np.isfinite(past)]
        if len(past) >= MIN_PAST:
            spread = MAD_TO_SD * float(np.median(np.abs(past)))
            spread = max(spread, float(np.sqrt(np.mean(np.clip(past, -3.0 * spread, 3.0 * spread) ** 2))))
            own = within[i : i + 2 * BLOCKS]  # the blocks under this change
            white = float(np.nanmedian(own)) * np.sqrt(2.0 / BLOCKS) if np.isfinite(own).any() else np.nan
            se[i] = OWN_PAST_INFLATION * np.fmax(spread, white)
    return PairedGap(_last_steps(steps, len(change)), level, change, np.where(se > 0.0, se, np.nan), 0)


def _median(runs: Sequence[Floats]) -> Floats:
    table = np.stack(runs)
    known = np.isfinite(table).any(axis=0)
    middle = np.full(table.shape[1], np.nan)
    middle[known] = np.nanmedian(table[:, known], axis=0)
    return middle


def _blocks(gap: Floats) -> Floats:
    return gap[: len(gap) // BLOCK * BLOCK].reshape(-1, BLOCK)


def _center(blocks: Floats) -> tuple[Floats, Floats]:
    """Per block median and robust sd; NaN where fewer than 8 pairs are known."""
    enough = np.isfinite(blocks).sum(axis=1) >= 8
    median, sd = np.full(len(blocks), np.nan), np.full(len(blocks), np.nan)
    median[enough] = np.nanmedian(blocks[enough], axis=1)
    sd[enough] = MAD_TO_SD * np.nanmedian(np.abs(blocks[enough] - median[enough, None]), axis=1)
    return median, sd


def _block_means(gap: Floats) -> Floats:
    """Means of 25 pairs, values further than 3 sd from the median pulled in."""
    blocks = _blocks(gap)
    median, sd = _center(blocks)
    means = np.full(len(blocks), np.nan)
    known = np.isfinite(median)
    rest, reach = blocks[known] - median[known, None], 3.0 * sd[known, None]
    means[known] = median[known] + np.nanmean(np.clip(rest, -reach, reach), axis=1)
    return means


def _block_noise(gap: Floats) -> Floats:
    """Standard error of each block mean by the scatter within it."""
    return _center(_blocks(gap))[1] / np.sqrt(BLOCK)


def _change(means: Floats) -> tuple[Floats, Floats]:
    """Mean of the newest 4 blocks, and that minus the mean of the 4 before; NaN where one of the 8 is missing."""
    if len(means) < 2 * BLOCKS:
        return np.zeros(0), np.zeros(0)
    newest = np.lib.stride_tricks.sliding_window_view(means, BLOCKS).mean(axis=1)
    return newest[BLOCKS:], newest[BLOCKS:] - newest[:-BLOCKS]


def _last_steps(steps: Ints, entries: int) -> Ints:
    return steps[BLOCK * (2 * BLOCKS + np.arange(entries)) - 1]
