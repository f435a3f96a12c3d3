"""Two models on the same items: who got which right (McNemar 1947)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from .facts import Items
from .inputs import RunView

EXACT = 1_000  # discordant items up to which the p value is summed exactly


@dataclass(frozen=True, slots=True)
class Pairing:
    """One task at one checkpoint: `won` items only the run got right, `lost` only the reference; of `n` in all."""

    won: int
    lost: int
    n: int

    @property
    def difference(self) -> float:
        """Accuracy of the run minus the reference's."""
        return (self.won - self.lost) / self.n

    @property
    def se(self) -> float:
        """Standard error of the difference, an item being drawn at random. With half an item added to each side
        (Agresti and Min 2005), so that no difference on few items is not taken for certain."""
        won, lost = self.won + 0.5, self.lost + 0.5
        n = self.n + 2.0
        return float(np.sqrt(max(won + lost - (won - lost) ** 2 / n, 0.0)) / n)

    @property
    def p(self) -> float:
        """Two-sided p of McNemar's exact test: chance of a split at least so uneven if both models are as good."""
        split, few = self.won + self.lost, min(self.won, self.lost)
        if split == 0:
            return 1.0
        if split > EXACT:  # normal, with continuity correction
            z = max(abs(self.won - self.lost) - 1.0, 0.0) / np.sqrt(split)
            return float(min(1.0, 2.0 * (1.0 - _phi(float(z)))))
        return min(1.0, 2.0 * sum(comb(split, k) for k in range(few + 1)) / 2**split)


def pairing(view: RunView, task: str, step: int, reference_step: int) -> Pairing | None:
    """The items of a task at the run's `step` beside the reference's at `reference_step`, the same checkpoint; None
    where one of them has none, or another number of items."""
    mine, theirs = _at(view.items.get(task, ()), step), _at(view.reference_items.get(task, ()), reference_step)
    if mine is None or theirs is None or len(mine.correct) != len(theirs.correct) or len(mine.correct) == 0:
        return None
    won = int(np.count_nonzero(mine.correct & ~theirs.correct))
    return Pairing(won, int(np.count_nonzero(~mine.correct & theirs.correct)), len(mine.correct))


def _at(items: Sequence[Items], step: int) -> Items | None:
    return next((i for i in reversed(items) if i.step == step), None)


def _phi(z: float) -> float:
    from statistics import NormalDist

    return NormalDist().cdf(z)
