"""What is kept between judgements of growing runs, and used again only where it would come out the same."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TypeVar, cast

import numpy as np

from service.compare.align import Level, align, head, kind_of, level
from service.compare.gap import (
    STRIDE_POINTS,
    Blocks,
    RawBlocks,
    combine,
    no_blocks,
    raw_blocks,
    spread_so_far,
    stride_of,
    widened,
)
from service.compare.growing import same_bits
from service.compare.pairs import Pool
from service.compare.units import POINTS, other_unit
from service.compare.words import Recurrences

from .beside import Pairs, Whole, whole
from .inputs import Floats, Ints, RunView, Series, Tolerance
from .memory import Unchanged, common_prefix
from .signals import LagChart, Signal, Track, signal

T = TypeVar("T")

MOST_CHARTS = 64
MIN_LAG_ANYWHERE = 64  # points: what comes again nearer than that is a rhythm
KEPT_RUNS = 4  # series of that many runs are held, so that what was seen before can be told from what was changed


@dataclass(frozen=True, slots=True)
class _Held:
    series: Series
    reference: Level
    raw: RawBlocks
    noise: Floats
    stride: int
    settled: int  # points of the series from which the stride is known
    blocks: Blocks


@dataclass(slots=True)
class LevelCache:
    """Levels and tolerances of references, and block means of the newest runs. A reference is recognised as the same
    object; a run by its points: blocks are kept as far as its series still begins with the points they were made of,
    so a late point or a rewind costs the blocks after it and no more. Never changes an answer."""

    levels: dict[str, tuple[Series, Level]] = field(default_factory=dict[str, tuple[Series, Level]])
    tolerances: dict[str, tuple[tuple[object, ...], Tolerance]] = field(
        default_factory=dict[str, tuple[tuple[object, ...], Tolerance]]
    )
    signals: dict[str, tuple[Series, Whole | None]] = field(default_factory=dict[str, tuple[Series, Whole | None]])
    pools: dict[str, tuple[tuple[object, ...], Pool]] = field(
        default_factory=dict[str, tuple[tuple[object, ...], Pool]]
    )
    lock: Lock = field(default_factory=Lock, repr=False)
    runs: OrderedDict[int, _Held] = field(default_factory=OrderedDict[int, _Held])
    made: list[tuple[tuple[object, ...], object]] = field(default_factory=list[tuple[tuple[object, ...], object]])
    scans: dict[str, list[tuple[Series, tuple[Ints, ...]]]] = field(
        default_factory=dict[str, list[tuple[Series, tuple[Ints, ...]]]]
    )
    tracks: dict[str, Track] = field(default_factory=dict[str, Track])
    paired: dict[str, Pairs] = field(default_factory=dict[str, Pairs])
    charts: OrderedDict[tuple[str, int, int], LagChart] = field(
        default_factory=OrderedDict[tuple[str, int, int], LagChart]
    )
    recurrences: Recurrences = field(default_factory=lambda: Recurrences(MIN_LAG_ANYWHERE))
    kinds: dict[type, object] = field(default_factory=dict[type, object])
    count: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def of_a_run(self) -> LevelCache:
        """A cache for one run alone, that shares with this one what is known of the reference."""
        return LevelCache(self.levels, self.tolerances, self.signals, self.pools, made=self.made)

    def get(self, metric: str, reference: Series) -> Level:
        """The local level of a reference series."""
        held = self.levels.get(metric)
        if held is None or held[0] is not reference:
            held = (reference, level(reference, kind_of(metric)))
            self.levels[metric] = held
        return held[1]

    def tolerance(self, metric: str, view: RunView, make: Callable[[], Tolerance]) -> Tolerance:
        """What `make` gives; kept while reference, siblings and declared tolerances are the same objects."""
        own = (view.reference.get(metric), view.tolerances.get(metric), view.same_order_declared)
        key = (*own, *(s.get(metric) for s in view.siblings))
        held = self.tolerances.get(metric)
        if held is None or len(held[0]) != len(key) or any(a is not b for a, b in zip(held[0], key, strict=True)):
            held = (key, make())
            self.tolerances[metric] = held
        return held[1]

    def pool(self, metric: str, view: RunView, make: Callable[[], Pool]) -> Pool:
        """What `make` gives; kept while reference and siblings are the same objects."""
        key = (view.reference.get(metric), *(s.get(metric) for s in view.siblings))
        held = self.pools.get(metric)
        if held is None or len(held[0]) != len(key) or any(a is not b for a, b in zip(held[0], key, strict=True)):
            held = (key, make())
            self.pools[metric] = held
        return held[1]

    def kept(self, kind: type[T]) -> T:
        """The one object of its kind, made when first asked for."""
        if kind not in self.kinds:
            self.kinds[kind] = kind()
        return cast("T", self.kinds[kind])

    def unchanged(self, name: Hashable, parts: tuple[object, ...], make: Callable[[], T]) -> T:
        """What `make` gives of this run, made again only where one of `parts`, all that it rests on, is another one."""
        return self.kept(Unchanged).get(name, parts, make)

    def other_unit(self, metric: str, run: Series, reference: Level) -> str | None:
        """`other_unit` of a run's metric, told again only of other first points."""
        first = head(run, reference, POINTS)
        parts = (Series(first.steps, first.tokens, first.values), reference)
        return self.unchanged(("unit", metric), parts, lambda: other_unit(first, reference))

    def once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """What `make` gives for this key, whose parts are compared by identity or are plain numbers."""
        for held, value in self.made:
            if len(held) == len(key) and all(
                a is b or (isinstance(a, float) and a == b) for a, b in zip(held, key, strict=True)
            ):
                return cast("T", value)
        value = make()
        del self.made[: -2 * KEPT_RUNS]  # in place: caches of single runs share it
        self.made.append((key, value))
        return value

    def signal(self, metric: str, series: Series, restarts: Sequence[int]) -> Signal | None:
        """The residual signal of a run's metric (`signals.signal`)."""
        with self.lock:
            return self.track(metric).advance(series, restarts)

    def track(self, metric: str) -> Track:
        """What is kept of a metric's signal."""
        return self.tracks.setdefault(metric, Track(metric))

    def pairs(self, metric: str) -> Pairs:
        """What is kept of a metric's pairs with the reference's."""
        return self.paired.setdefault(metric, Pairs())

    def chart_of(self, metric: str, lag: int, begin: int) -> LagChart:
        """What is kept of a metric's repeating itself at one lag from one point on."""
        key = (metric, lag, begin)
        chart = self.charts.pop(key, None) or LagChart(lag, begin)
        self.charts[key] = chart
        while len(self.charts) > MOST_CHARTS:
            self.charts.popitem(last=False)
        return chart

    def reference_signal(self, metric: str, reference: Series) -> Whole | None:
        """The residual signal of a reference's metric, ready to be paired with."""
        held = self.signals.get(metric)
        if held is None or held[0] is not reference:
            found = signal(metric, reference)
            held = (reference, None if found is None else whole(reference, found))
            self.signals[metric] = held
        return held[1]

    def blocks(self, run: Series, reference: Level, window: int) -> Blocks | None:
        """`block_gaps(align(run, reference), window)`, equal to the last bit; new points cost what they are. None where
        no point lies in the reference's range."""
        with self.lock:
            return self._blocks(run, reference, window)

    def _blocks(self, run: Series, reference: Level, window: int) -> Blocks | None:
        for key, held in reversed(self.runs.items()):
            if held.reference is reference and _same_start(held.series, run):
                found = self._grown(held, run, common_prefix(held.series, run), window)
                if found is not None:
                    del self.runs[key]
                    return self._keep(key, found)
        placed = align(run, reference)
        if len(placed) == 0:
            return None
        stride = stride_of(placed.steps)
        raw = raw_blocks(placed, widened(window, stride), stride)
        settled = len(run) + 1  # the log's stride is taken from its first 64 points inside the reference
        if len(placed) >= STRIDE_POINTS:
            settled = int(np.searchsorted(run.steps, int(placed.steps[STRIDE_POINTS - 1]), side="right"))
        noise = spread_so_far(raw.sd) if len(raw) else raw.sd
        return self._keep(next(self.count), _Held(run, reference, raw, noise, stride, settled, combine(raw, noise)))

    def non_finite(self, series: Series, metric: str = "") -> Ints:
        """Indices of a metric's values that are NaN or infinite."""
        return self.scan(f"non-finite {metric}", series, _non_finite)[0]

    def scan(self, name: str, series: Series, find: Callable[[Series, int], tuple[Ints, ...]]) -> tuple[Ints, ...]:
        """`find(series, 0)`, looking at new points only where the series has grown. `find(series, start)` gives
        ascending indices ≥ start of points that stand out; whether one does may depend on the point after it, no later
        one."""
        with self.lock:
            held = self.scans.setdefault(name, [])  # the newest last
            at = next((i for i in reversed(range(len(held))) if _same_start(held[i][0], series)), None)
            old, found = (None, ()) if at is None else held.pop(at)
            same = 0 if old is None else common_prefix(old, series)
            if old is not None and same == len(old) == len(series):
                held.append((series, found))
                return found
            start = max(same - 1, 0)
            later = find(series, start)
            if start:
                later = tuple(_joined(f, new, start) for f, new in zip(found, later, strict=True))
            held.append((series, later))
            del held[:-KEPT_RUNS]
            return later

    def _keep(self, key: int, held: _Held) -> Blocks:
        self.runs[key] = held
        while len(self.runs) > KEPT_RUNS:
            self.runs.popitem(last=False)
        return held.blocks

    def _grown(self, held: _Held, run: Series, same: int, window: int) -> _Held | None:
        """The blocks of `run`, whose first `same` points are those of `held`; None where nothing can be used again."""
        raw, base = held.raw, held.reference.points
        if held.settled > same or raw.window != widened(window, held.stride):
            return None
        ends = ((raw.first_step - 1) // raw.window + 1) * raw.window
        keep = int(np.searchsorted(ends, int(run.steps[same - 1]), side="right"))
        if keep == 0:
            return None
        # One point more than the new blocks need: a point's pairing looks at the one before it.
        start = int(np.searchsorted(run.steps, int(ends[keep - 1]), side="right")) - 1
        tail = Series(run.steps[start:], run.tokens[start:], run.values[start:])
        if not base[0] <= tail.tokens[0] <= base[-1]:
            return None if np.any(tail.tokens <= base[-1]) else replace(held, series=run)
        if keep == len(raw) and int(run.steps[-1]) + max(held.stride, 1) <= int(ends[-1]) + raw.window:
            return replace(held, series=run)  # no block has been filled since
        placed = align(tail, held.reference, first=1)
        later = raw_blocks(placed, raw.window, held.stride) if len(placed) else no_blocks(raw.window)
        joined = raw.joined(later, keep)
        noise = held.noise[:keep]
        if len(joined) > keep:
            noise = np.concatenate((noise, spread_so_far(joined.sd, keep)))
        return replace(held, series=run, raw=joined, noise=noise, blocks=combine(joined, noise))


def _same_start(old: Series, new: Series) -> bool:
    if old is new:
        return True
    if len(old) == 0 or len(new) == 0 or old.steps[0] != new.steps[0]:
        return False
    return same_bits(old.values[:1], new.values[:1]) == 1


def _joined(found: Ints, new: Ints, start: int) -> Ints:
    if len(new) == 0 and (len(found) == 0 or found[-1] < start):
        return found
    return np.concatenate((found[: np.searchsorted(found, start)], new))


def _non_finite(series: Series, start: int) -> tuple[Ints, ...]:
    return (np.flatnonzero(~np.isfinite(series.values[start:])) + start,)
