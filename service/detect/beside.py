"""A run's residual signal beside its reference's, pair by pair at equal tokens, kept while the run grows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.compare.growing import Growing, same_bits
from service.compare.signature import TILE, Grid, same_batch_evidence

from .inputs import Floats, Ints, Series
from .memory import Memory
from .sequential import Chart
from .signals import TURN, Signal, across

Sums = tuple[float, float, float, int]  # squares of one and the other, products, pairs


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """The signal of a reference's metric, which does not grow. `spacing` is the usual distance of its points in tokens,
    `residuals` (n,) are all of its signal's."""

    points: Series
    grid: Grid
    residuals: Floats
    spacing: float


@dataclass(frozen=True, slots=True)
class Paired:
    """Residuals of a run's n grid points and the reference's at equal tokens (NaN where it has none)."""

    run: Signal
    settled: Floats
    open: Floats
    chart: Chart
    memory: Memory
    _edges: list[Sums]
    _parts: dict[tuple[int, int], Sums] = field(default_factory=dict[tuple[int, int], Sums])

    def other(self, begin: int, end: int) -> Floats:
        """The reference's residuals beside points `begin` up to `end`."""
        return across(self.settled, self.open, begin, end)

    def evidence(self, begin: int, end: int) -> Floats:
        """Per point the evidence for one batch, in nats."""
        return same_batch_evidence(self.run.part(begin, end), self.other(begin, end))

    def correlation(self, begin: int, end: int) -> tuple[float, int]:
        """Correlation about zero over points `begin` up to `end`, and on how many pairs; (0, n) where one is flat."""
        mine, other, product, pairs = self._sums(begin, end)
        power = mine * other
        return (product / float(np.sqrt(power)) if power > 0.0 else 0.0), pairs

    def count(self, begin: int, end: int) -> int:
        """Pairs from point `begin` up to `end`."""
        return self._sums(begin, end)[3]

    def _sums(self, begin: int, end: int) -> Sums:
        first, last = -(-begin // TILE), min(end, len(self.settled)) // TILE
        if first >= last:
            return self._part(begin, end)
        total = _plus(self._part(begin, first * TILE), _plus(self._edges[last], self._edges[first], -1))
        return _plus(total, self._part(last * TILE, end))

    def _part(self, begin: int, end: int) -> Sums:
        """Sums point by point; the newest points are asked for by several rules."""
        if end <= begin:
            return 0.0, 0.0, 0.0, 0
        if (begin, end) not in self._parts:
            self._parts[begin, end] = _sums(self.run.part(begin, end), self.other(begin, end))
        return self._parts[begin, end]


@dataclass(slots=True)
class Pairs:
    """Pairs of one metric while the run grows: `advance` looks at what is new. What is kept rests on settled tiles."""

    memory: Memory = field(default_factory=Memory)
    _before: tuple[Signal, Series, Whole] | None = None
    _other: Growing[np.float64] = field(default_factory=lambda: Growing(np.zeros(0)))
    _edges: list[Sums] = field(default_factory=lambda: [(0.0, 0.0, 0.0, 0)])
    _chart: Chart = field(default_factory=lambda: Chart(TURN, TURN))

    def advance(self, run: Signal, points: Series, reference: Whole) -> Paired:
        """The pairs of the run's signal, made of `points`, as they are now."""
        self._keep(run, points, reference)
        self._before = (run, points, reference)
        kept, settled = len(self._other), len(run.settled)
        if settled > kept:
            fresh = _beside(run.grid, points, reference, kept, settled)
            mine = run.settled[kept:]
            self._other = self._other.grown(kept, fresh)
            self._chart.advance(-same_batch_evidence(mine, fresh))
            for tile in _tile_sums(mine, fresh):
                self._edges.append(_plus(self._edges[-1], tile))
        rest = _beside(run.grid, points, reference, settled, len(run))
        chart = self._chart.copy()
        chart.advance(-same_batch_evidence(run.open, rest))
        return Paired(run, self._other.array, rest, chart, self.memory, self._edges)

    def _keep(self, run: Signal, points: Series, reference: Whole) -> None:
        """Forget what no longer holds."""
        keep = 0
        if self._before is not None:
            before, old, other = self._before
            alike = (before.grid.first_step, before.grid.stride) == (run.grid.first_step, run.grid.stride)
            if alike and other is reference:
                keep = same_bits(before.settled, run.settled)
                same = min(same_bits(old.steps, points.steps), same_bits(old.tokens, points.tokens))
                if same < len(old):
                    step = int(points.steps[same]) if same < len(points) else int(points.steps[-1]) + 1
                    keep = min(keep, max(run.grid.index(step), 0))
        keep = min(keep, len(self._other)) // TILE * TILE
        if self._before is None or keep == len(self._other):
            return
        self._other = Growing(self._other.array[:keep])
        self._edges = self._edges[: keep // TILE + 1]
        self.memory.forget(keep)
        self._chart = Chart(TURN, TURN)
        self._chart.advance(-same_batch_evidence(run.settled[:keep], self._other.array))


def whole(points: Series, signal: Signal) -> Whole:
    """What runs are paired with, of a reference's series and its signal."""
    spacing = float(np.median(np.diff(points.tokens))) if len(points) > 1 else 1.0
    return Whole(points, signal.grid, signal.residuals, spacing)


def _beside(grid: Grid, points: Series, reference: Whole, begin: int, end: int) -> Floats:
    """The reference's residuals at the grid's points `begin` up to `end`, by equal tokens; NaN where it has none."""
    out = np.full(end - begin, np.nan)
    low, high = np.searchsorted(points.steps, (grid.step(begin), grid.step(end)))
    if high == low:
        return out
    steps, tokens = points.steps[low:high], points.tokens[low:high]
    where, met = meet(tokens, reference.points, reference.spacing)
    their_steps = reference.points.steps[where]
    source, off = _places(reference.grid, their_steps)
    target, missing = _places(grid, steps)
    target -= begin
    use = met & ~off & ~missing & (target >= 0) & (target < len(out))
    if use.all() and source[-1] - source[0] == len(source) - 1 and len(out) == len(target):
        return reference.residuals[source[0] : source[-1] + 1].copy()
    out[target[use]] = reference.residuals[source[use]]
    return out


def meet(tokens: Floats, theirs: Series, spacing: float) -> tuple[Ints | slice, NDArray[np.bool_]]:
    """Of a reference's points, `spacing` tokens apart, those at the given tokens (n,): where they are (a slice where
    both log every step), and whether there is one."""
    at = int(np.searchsorted(theirs.tokens, float(tokens[0]) - 0.5 * spacing))
    there = slice(at, at + len(tokens))
    beside = theirs.tokens[there]
    near = 1e-3 * max(spacing, 1e-9)
    in_step = len(beside) == len(tokens) and bool((np.abs(beside - tokens) <= near).all())
    if in_step and bool((beside[:-1] < tokens[1:] - 0.5 * spacing).all()):
        return there, np.ones(len(tokens), np.bool_)
    where: Ints = np.minimum(np.searchsorted(theirs.tokens, tokens - 0.5 * spacing), len(theirs) - 1)
    return where, np.abs(theirs.tokens[where] - tokens) <= near


def _places(grid: Grid, steps: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    index = steps - grid.first_step
    off = (index < 0) | (index >= len(grid) * grid.stride)
    if grid.stride != 1:
        index, rest = np.divmod(index, grid.stride)
        off |= rest != 0
    return index, off


def _sums(mine: Floats, other: Floats) -> Sums:
    both = np.isfinite(mine) & np.isfinite(other)
    a, b = mine[both], other[both]
    return float((a * a).sum()), float((b * b).sum()), float((a * b).sum()), len(a)


def _tile_sums(mine: Floats, other: Floats) -> list[Sums]:
    """Sums of each tile, whole tiles only; the same numbers whatever stands beside a tile."""
    both = np.isfinite(mine) & np.isfinite(other)
    a, b = (np.where(both, values, 0.0).reshape(-1, TILE) for values in (mine, other))
    columns = [(a * a).sum(axis=1), (b * b).sum(axis=1), (a * b).sum(axis=1), both.reshape(-1, TILE).sum(axis=1)]
    return [(float(x), float(y), float(z), int(n)) for x, y, z, n in zip(*columns, strict=True)]


def _plus(one: Sums, other: Sums, sign: int = 1) -> Sums:
    return (
        one[0] + sign * other[0], one[1] + sign * other[1], one[2] + sign * other[2], one[3] + sign * other[3],
    )  # fmt: skip
