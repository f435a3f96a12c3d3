"""Sequential detection: one-sided cumulative sums, and the episodes they open and close."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Episode:
    """Indices into the increments: first of the excursion that led to the alarm, the alarm, the end (None: open)."""

    onset: int
    alarm: int
    end: int | None


@dataclass(slots=True)
class Chart:
    """A CUSUM (Page 1954) that is fed bit by bit: `advance` in pieces of any size comes out the same, to the last bit.

    `episodes` are those found so far, the last one perhaps open. `edge` is the lowest sum since the last episode, or
    the highest since the alarm of the open one; `edge_at` how many increments had been fed there. `total` is the sum
    by which episodes open, `total_open` the one by which they end."""

    threshold: float
    release: float
    episodes: list[Episode] = field(default_factory=list[Episode])
    fed: int = 0
    total: float = 0.0
    total_open: float = 0.0
    edge: float = 0.0
    edge_at: int = 0

    @property
    def open(self) -> bool:
        """Whether an episode is open."""
        return bool(self.episodes) and self.episodes[-1].end is None

    def copy(self) -> Chart:
        """Another one in the same state."""
        return replace(self, episodes=list(self.episodes))

    def advance(self, increments: Floats, while_open: Floats | None = None) -> None:
        """Feed the next increments (n,); `while_open` (n,) stand in their place while an episode is open."""
        sums = np.cumsum(np.concatenate(([self.total], increments)))
        sums_open = sums
        if while_open is not None:
            sums_open = np.cumsum(np.concatenate(([self.total_open], while_open)))
        at, last = 0, len(increments)
        while at < last:
            at = self._to_end(sums, sums_open, at) if self.open else self._to_alarm(sums, sums_open, at)
        self.fed += last
        self.total, self.total_open = float(sums[-1]), float(sums_open[-1])

    def _to_alarm(self, sums: Floats, sums_open: Floats, at: int) -> int:
        """Go on from place `at` of the sums to the next alarm, or to their end."""
        part = sums[at:].copy()
        part[0] = self.edge  # the lowest before counts like a sum of this piece
        lowest = np.minimum.accumulate(part)
        reached = np.flatnonzero(sums[at + 1 :] - lowest[1:] >= self.threshold)
        stop = int(reached[0]) + 1 if len(reached) else len(part) - 1
        lows = np.flatnonzero(part[1 : stop + 1] == lowest[stop])
        if len(lows):
            self.edge_at = self.fed + at + int(lows[-1]) + 1
        self.edge = float(lowest[stop])
        if len(reached):
            self.episodes.append(Episode(self.edge_at, self.fed + at + stop - 1, None))
            self.edge, self.edge_at = float(sums_open[at + stop]), self.fed + at + stop
        return at + stop

    def _to_end(self, sums: Floats, sums_open: Floats, at: int) -> int:
        """Go on from place `at` to the end of the open episode, or of the sums."""
        part = sums_open[at:].copy()
        part[0] = self.edge
        highest = np.maximum.accumulate(part)
        fallen = np.flatnonzero(highest[1:] - sums_open[at + 1 :] >= self.release)
        stop = int(fallen[0]) + 1 if len(fallen) else len(part) - 1
        self.edge = float(highest[stop])
        if len(fallen):
            self.episodes[-1] = replace(self.episodes[-1], end=self.fed + at + stop - 1)
            self.edge, self.edge_at = float(sums[at + stop]), self.fed + at + stop
        return at + stop


def episodes(increments: Floats, threshold: float, release: float | None = None) -> list[Episode]:
    """Episodes of a CUSUM: the sum of `increments` (n,) since its last minimum reaches `threshold`.

    An episode ends when the sum has fallen by `release` (default: twice the threshold) below its highest since the
    alarm. Causal: what is said at index i depends on increments 0…i only. Cost: linear, in numpy."""
    chart = Chart(threshold, 2.0 * threshold if release is None else release)
    chart.advance(increments)
    return chart.episodes


def first_alarm(pieces: Iterable[Floats], threshold: float) -> Episode | None:
    """The first episode, of increments that come in pieces; those after its alarm are not asked for."""
    chart = Chart(threshold, 2.0 * threshold)
    for piece in pieces:
        chart.advance(piece)
        if chart.episodes:
            return chart.episodes[0]
    return None
