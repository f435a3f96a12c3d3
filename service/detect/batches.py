"""The stretches of a run that were read before, as they show in its own series.

Pure and causal like all of detect: what is found depends on the points up to the view's newest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.compare.signature import PIECE, Match, best_match, correlation, residuals
from service.compare.words import WORD

from .cache import LevelCache
from .inputs import Floats, RunView
from .sequential import first_alarm
from .signals import CHANNELS, TRAIN, TURN, Signal, lagged_evidence

LOOKS = (16, 24, 32, 48, 64)  # points after a restart at which a replay is looked for
ALPHA = 1e-8  # of a false replay per restart and channel
LEAST = 0.8  # correlation below which nothing is called the same batches, however significant
MIN_LAG = 16  # points: nearer copies overlap the stretch that is looked for
RHYTHM = 0.5  # the same lag correlates by this share before the restart: a rhythm of the data, no replay
SHORTEST = 48  # points a replay away from any restart must last


@dataclass(frozen=True, slots=True)
class Replay:
    """From step `start` on the run reads the batches it read from step `source` on, `lag` steps earlier, up to step
    `end` (None: still). `restart`: the trainer start it began with (updates made), None for none. `known_at`: the step
    by which it was certain. `metric` is where it shows, `match` how clearly; `before` the correlation at the same lag
    just before. `legal`: it is a pass over the data set that was declared."""

    start: int
    source: int
    lag: int
    end: int | None
    restart: int | None
    known_at: int
    metric: str
    match: Match
    before: float
    legal: bool


@dataclass(frozen=True, slots=True)
class ReplayFinding:
    """All replays by start step; `points` and `stride` of the train loss, and how many restarts were looked at."""

    replays: list[Replay]
    points: int
    stride: int
    restarts: int
    metrics: list[str]

    @property
    def open(self) -> Replay | None:
        """The replay that goes on now."""
        return next((r for r in reversed(self.replays) if r.end is None and not r.legal), None)


def find_replays(view: RunView, cache: LevelCache | None = None) -> ReplayFinding | None:
    """Stretches the run had read before; None without a train loss on an even grid. With a cache that was given before,
    what is new is looked at."""
    cache = cache or LevelCache()
    restarts = sorted({s.start_step for s in view.segments if s.start_step > 0})
    signals = [
        found
        for metric in CHANNELS
        if (series := view.metrics.get(metric)) is not None
        and (found := cache.signal(metric, series, restarts)) is not None
    ]
    if not signals or signals[0].metric != TRAIN:
        return None
    replays: list[Replay] = []
    looked = 0
    for i, restart in enumerate(restarts):
        until = restarts[i + 1] if i + 1 < len(restarts) else None
        found = [
            r for s in signals if (r := _after_restart(s, restart, until, ALPHA / len(signals), cache)) is not None
        ]
        looked += _points_after(signals[0], restart, until) >= LOOKS[0]
        if found:
            replays.append(min(found, key=lambda r: r.known_at))
    replays += _anywhere(signals[0], replays, cache)
    judged = [_with_legality(view, replay) for replay in sorted(replays, key=lambda r: r.start)]
    grid = signals[0].grid
    return ReplayFinding(judged, len(grid), grid.stride, looked, [s.metric for s in signals])


def _points_after(found: Signal, restart: int, until: int | None) -> int:
    first = max(found.grid.index(restart + 1), 0)
    last = len(found.grid) if until is None else min(found.grid.index(until + 1), len(found.grid))
    return max(last - first, 0)


def _after_restart(found: Signal, restart: int, until: int | None, alpha: float, cache: LevelCache) -> Replay | None:
    """Is what follows a restart a copy of something before it?"""
    grid = found.grid
    first, points = max(grid.index(restart + 1), 0), _points_after(found, restart, until)
    looks = tuple(n for n in LOOKS if n <= points)
    if first < 2 * MIN_LAG or not looks:
        return None
    told = cache.track(found.metric).memory.remember(
        ("restart", first, looks, alpha), first + looks[-1], lambda: _copied(found, first, looks, alpha)
    )
    if told is None:
        return None
    match, certain, before = told
    ended = cache.chart_of(found.metric, match.lag, first).first(found)
    end = None if ended is None else grid.step(ended.onset)
    return _described(found, match, first, end, restart, grid.step(first + certain - 1), before)


def _copied(found: Signal, first: int, looks: Sequence[int], alpha: float) -> tuple[Match, int, float] | None:
    """What the points from `first` on are a copy of, after how many that was certain, and the correlation at the same
    lag just before. All as it stood when these points had come, against all before them."""
    past = found.as_of(first)
    tried: dict[int, Match | None] = {}

    def look(n: int) -> Match | None:
        if n not in tried:
            fresh = residuals(found.grid.values[first : first + n])
            history = np.concatenate((past, fresh))
            tried[n] = best_match(fresh, history, alpha=alpha / len(LOOKS), least=LEAST, min_lag=MIN_LAG)
        return tried[n]

    # The longest look tells; the shortest finds what ended within it. Those between only say when it was certain.
    match = look(looks[-1]) or look(looks[0])
    if match is None:
        return None
    certain = next(n for n in looks if n == match.n or _agrees(look(n), match))
    span = min(64, first - match.lag)
    before = 0.0
    if span >= LOOKS[0]:
        before, _ = correlation(past[-span:], past[first - span - match.lag : first - match.lag])
    return None if before > RHYTHM * match.r else (match, certain, before)


def _agrees(earlier: Match | None, later: Match) -> bool:
    return earlier is not None and earlier.lag == later.lag


def _anywhere(found: Signal, known: Sequence[Replay], cache: LevelCache) -> list[Replay]:
    """Replays that begin with no restart, as a loader that begins its pass again would make them."""
    grid, n = found.grid, len(found)
    hits = cache.recurrences.find(found.settled, found.open)
    covered = [(grid.index(r.start), n if r.end is None else grid.index(r.end)) for r in known]
    made: list[Replay] = []
    for index, lag, _ in hits:
        if any(low - WORD <= index < high for low, high in covered):  # an older copy of what is known to repeat
            continue
        turned = first_alarm(_backwards(found, lag, index + 1), TURN)
        first = lag if turned is None else index + 1 - turned.onset
        ended = cache.chart_of(found.metric, lag, index).first(found)
        last = n if ended is None else ended.onset
        covered.append((first, last))
        r, pairs = correlation(found.part(first, last), found.part(first - lag, last - lag))
        if last - first < SHORTEST or pairs < SHORTEST or r < LEAST:
            continue
        match = Match(lag, r, pairs, LEAST, 0.0, n)
        stop = None if ended is None else grid.step(last)
        made.append(_described(found, match, first, stop, None, grid.step(min(index + 64, n) - 1), 0.0))
    return made


def _backwards(found: Signal, lag: int, end: int) -> Iterator[Floats]:
    """Evidence against points having been read `lag` points earlier, from point `end` - 1 back to `lag`, in pieces."""
    while end > lag:
        begin = max(end - PIECE, lag)
        yield -lagged_evidence(found, lag, begin, end)[::-1]
        end = begin


def _described(
    found: Signal, match: Match, first: int, end: int | None, restart: int | None, known_at: int, before: float
) -> Replay:
    start, lag = found.grid.step(first), match.lag * found.grid.stride
    return Replay(start, start - lag, lag, end, restart, known_at, found.metric, match, before, False)


def _with_legality(view: RunView, replay: Replay) -> Replay:
    """A further pass in the same order is legal where it was declared, and its lag is a pass's length (known from the
    rows read per step); where that length is not known, if it did not begin with a restart."""
    if view.data is None or view.data.epochs <= 1.0:
        return replay
    rows = view.rows
    if rows is None or len(rows.seen_rows) == 0 or not rows.seen_rows.any():
        legal = replay.restart is None
    else:
        length = view.data.rows / float(np.median(rows.seen_rows))
        passes = round(replay.lag / length)
        near = abs(replay.lag - passes * length) <= max(2.0, 0.005 * replay.lag)
        legal = near and 1 <= passes <= view.data.epochs
    return replace(replay, legal=legal)
