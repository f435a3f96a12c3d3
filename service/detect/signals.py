"""A run's metrics as residual signals, in which equal batches are recognised, kept while the run grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from service.compare.growing import Growing, same_bits
from service.compare.signature import PIECE, Grid, on_grid, residuals, same_batch_evidence, settled_points

from .inputs import Floats, Ints, Series
from .memory import Memory
from .sequential import Chart, Episode

TRAIN = "train/ce_loss"
NORM = "optim/grad_norm"
TURN = 20.0  # evidence in nats after which a stretch counts as read before, or no longer
CHANNELS = (TRAIN, NORM, "train/scored_tokens")  # what a batch leaves its signature in


def across(settled: Floats, open: Floats, begin: int, end: int) -> Floats:
    """Points `begin` up to `end` of `settled` followed by `open`, joined only where they lie in both."""
    cut = len(settled)
    if end <= cut:
        return settled[begin:end]
    if begin >= cut:
        return open[begin - cut : end - cut]
    return np.concatenate((settled[begin:], open[: end - cut]))


@dataclass(frozen=True, slots=True)
class Signal:
    """One metric of a run as standardised residuals on its grid; restarts (`breaks`, points) begin a new local mean.

    `settled` (m,): the residuals that no later point changes; `open`: those behind them, n points in all."""

    metric: str
    grid: Grid
    breaks: tuple[int, ...]
    settled: Floats
    open: Floats

    def part(self, begin: int, end: int) -> Floats:
        """Residuals of the points from `begin` up to `end`."""
        return across(self.settled, self.open, begin, end)

    @property
    def residuals(self) -> Floats:
        """All of them, (n,)."""
        return np.concatenate((self.settled, self.open))

    def as_of(self, point: int) -> Floats:
        """The residuals (point,) as they stood when the first `point` points had come."""
        keep = min(settled_points(point), len(self.settled))
        fresh = residuals(self.grid.values[:point], [b for b in self.breaks if b < point], start=keep)
        return np.concatenate((self.settled[:keep], fresh))

    def __len__(self) -> int:
        return len(self.grid)


def signal(metric: str, series: Series, restarts: Sequence[int] = ()) -> Signal | None:
    """The residual signal of a metric; None where it lies on no even grid or does not vary. `restarts`: updates made
    at each trainer start."""
    return Track(metric).advance(series, restarts)


@dataclass(slots=True)
class Track:
    """The signal of one metric while its series grows: `advance` gives what `signal` would, and looks at what is new.

    `memory` is of the grid's points."""

    metric: str
    memory: Memory = field(default_factory=Memory)
    _series: Series | None = None
    _grid: _GrowingGrid | None = None
    _breaks: tuple[int, ...] = ()
    _settled: Growing[np.float64] = field(default_factory=lambda: Growing(np.zeros(0)))
    _varies: bool = False  # whether any settled residual is not 0
    _last: tuple[Series, tuple[int, ...], Signal | None] | None = None

    def advance(self, series: Series, restarts: Sequence[int]) -> Signal | None:
        """The signal of the series as it is now."""
        last = self._last
        if last is None or last[0] is not series or last[1] != tuple(restarts):
            self._last = last = (series, tuple(restarts), self._advance(series, restarts))
        return last[2]

    def _advance(self, series: Series, restarts: Sequence[int]) -> Signal | None:
        self._place(series)
        if self._grid is None:
            return None
        grid = self._grid.grid
        breaks = tuple(sorted({at for restart in restarts if (at := grid.index(restart + 1)) > 0}))
        differ = set(breaks) ^ set(self._breaks)
        if differ:
            self._forget(min(differ))
        self._breaks = breaks
        kept = len(self._settled)
        settled = settled_points(len(grid)) - kept
        fresh = residuals(grid.values, breaks, start=kept)
        self._settled = self._settled.grown(kept, fresh[:settled])
        self._varies = self._varies or _varies(fresh[:settled])
        if not self._varies and not _varies(fresh):
            return None
        return Signal(self.metric, grid, breaks, self._settled.array, fresh[settled:])

    def _place(self, series: Series) -> None:
        """Bring the grid up to the series, and forget what is no longer so."""
        old, before = self._series, self._grid
        self._series = series
        if before is not None and old is not None and _begins(old, series):
            n = len(old)
            if before.grow(series.steps[n:], self._values(series.values[n:])):
                return
        self._grid = _GrowingGrid.of(series.steps, self._values(series.values))
        if before is None or self._grid is None:
            self._forget(0)
            return
        was, now = before.grid, self._grid.grid
        alike = (was.first_step, was.stride) == (now.first_step, now.stride)
        self._forget(same_bits(was.values, now.values) if alike else 0)

    def _forget(self, points: int) -> None:
        """Only the first `points` points are as they were."""
        keep = min(settled_points(points), len(self._settled))
        self._settled = Growing(self._settled.array[:keep])
        self._varies = _varies(self._settled.array)
        self.memory.forget(points)

    def _values(self, values: Floats) -> Floats:
        if self.metric == NORM:  # its scatter is in proportion to its size
            return np.log(np.where(values > 0.0, values, np.nan))
        return values


@dataclass(slots=True)
class _GrowingGrid:
    """`on_grid` of a series that grows."""

    grid: Grid
    _origin: int  # first step of the series
    _last: int
    _strides: dict[int, int]  # distances of neighbouring points, and how often each
    _phases: dict[int, int]  # distances from the origin, modulo the stride, and how often each
    _values: Growing[np.float64]

    @staticmethod
    def of(steps: Ints, values: Floats) -> _GrowingGrid | None:
        grid = on_grid(steps, values)
        if grid is None:
            return None
        origin, last = int(steps[0]), int(steps[-1])
        strides, phases = _counts(np.diff(steps)), _counts((steps - origin) % grid.stride)
        return _GrowingGrid(grid, origin, last, strides, phases, Growing(grid.values))

    def grow(self, steps: Ints, values: Floats) -> bool:
        """Go on with later points; False where the grid is another one with them."""
        if len(steps) == 0:
            return True
        first, stride = self.grid.first_step, self.grid.stride
        _add(self._strides, np.diff(steps, prepend=self._last))
        _add(self._phases, (steps - self._origin) % stride)
        phase = (first - self._origin) % stride
        if _commonest(self._strides) != stride or _commonest(self._phases) != phase:
            return False
        self._last = int(steps[-1])
        on = (steps - first) % stride == 0
        if not on.any():
            return True
        at, n = (steps[on] - first) // stride, len(self._values)
        if int(at[-1]) + 1 > 4 * self._phases[phase]:
            return False
        more = np.full(int(at[-1]) + 1 - n, np.nan)
        more[at - n] = np.where(np.isfinite(values[on]), values[on], np.nan)
        self._values = self._values.grown(n, more)
        self.grid = Grid(first, stride, self._values.array)
        return True


def _commonest(counts: dict[int, int]) -> int:
    most = max(counts.values())
    return min(value for value, count in counts.items() if count == most)


def _counts(values: Ints) -> dict[int, int]:
    found: dict[int, int] = {}
    _add(found, values)
    return found


def _add(counts: dict[int, int], values: Ints) -> None:
    if len(values) and (values == values[0]).all():  # the usual case
        counts[int(values[0])] = counts.get(int(values[0]), 0) + len(values)
        return
    for value, count in zip(*np.unique(values, return_counts=True), strict=True):
        counts[int(value)] = counts.get(int(value), 0) + int(count)


def _varies(values: Floats) -> bool:
    return bool(((values != 0.0) & np.isfinite(values)).any())


def _begins(old: Series, new: Series) -> bool:
    n = len(old)
    return len(new) >= n and same_bits(old.steps, new.steps) == n and same_bits(old.values, new.values) == n


def lagged_evidence(found: Signal, lag: int, begin: int, end: int) -> Floats:
    """Per point from `begin` (at least `lag`) up to `end`: evidence in nats for its batch having been read `lag` points
    earlier."""
    return same_batch_evidence(found.part(begin, end), found.part(begin - lag, end - lag))


@dataclass(slots=True)
class LagChart:
    """From which point on a signal that grows no longer repeats itself at one lag, looked for from `begin` on."""

    lag: int
    begin: int
    _settled: Floats = field(default_factory=lambda: np.zeros(0))
    _chart: Chart = field(default_factory=lambda: Chart(TURN, 2.0 * TURN))

    def first(self, found: Signal) -> Episode | None:
        """The first episode against the lag; onset and alarm are points of the signal."""
        fed = self.begin + self._chart.fed
        if same_bits(self._settled, found.settled) < min(fed, len(self._settled)):
            self._chart, fed = Chart(TURN, 2.0 * TURN), self.begin
        self._settled = found.settled
        chart, n = self._chart, len(found)
        while fed < n and not chart.episodes:
            end = min(fed + PIECE, len(found.settled)) if fed < len(found.settled) else n
            chart = chart if end <= len(found.settled) else chart.copy()
            chart.advance(-lagged_evidence(found, self.lag, fed, end))
            fed = end
        if not chart.episodes:
            return None
        told = chart.episodes[0]
        return Episode(told.onset + self.begin, told.alarm + self.begin, None)
