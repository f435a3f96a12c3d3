"""A run's batches as they show in its own series: residual signals, and the stretches of the run that were read before.

Pure and causal like all of detect: what is found depends on the points up to the view's newest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from service.compare.signature import (
    WORD,
    Grid,
    Match,
    best_match,
    correlation,
    on_grid,
    recurrences,
    residuals,
    same_batch_evidence,
)

from .inputs import Floats, RunView, Series
from .sequential import episodes

TRAIN = "train/ce_loss"
CHANNELS = (TRAIN, "optim/grad_norm", "train/scored_tokens")  # what a batch leaves its signature in
LOOKS = (16, 24, 32, 48, 64)  # points after a restart at which a replay is looked for
ALPHA = 1e-8  # of a false replay per restart and channel
LEAST = 0.8  # correlation below which nothing is called the same batches, however significant
MIN_LAG = 16  # points: nearer copies overlap the stretch that is looked for
MIN_LAG_ANYWHERE = 64
RHYTHM = 0.5  # the same lag correlates by this share before the restart: a rhythm of the data, no replay
TURN = 20.0  # evidence in nats after which a stretch counts as read before, or no longer
SHORTEST = 48  # points a replay away from any restart must last


@dataclass(frozen=True, slots=True)
class Signal:
    """One metric of a run as standardised residuals (n,) on its grid; restarts begin a new local mean."""

    metric: str
    grid: Grid
    residuals: Floats


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


def signal(metric: str, series: Series, restarts: Sequence[int] = ()) -> Signal | None:
    """The residual signal of a metric; None where it lies on no even grid or does not vary. `restarts`: updates made
    at each trainer start. Kept for the newest few series objects, as a reference is asked for again and again."""
    return _signal(metric, _Identity(series), tuple(restarts))


def find_replays(view: RunView) -> ReplayFinding | None:
    """Stretches the run had read before; None without a train loss on an even grid."""
    restarts = sorted({s.start_step for s in view.segments if s.start_step > 0})
    signals = [
        found
        for metric in CHANNELS
        if (series := view.metrics.get(metric)) is not None and (found := signal(metric, series, restarts)) is not None
    ]
    if not signals or signals[0].metric != TRAIN:
        return None
    replays: list[Replay] = []
    looked = 0
    for i, restart in enumerate(restarts):
        until = restarts[i + 1] if i + 1 < len(restarts) else None
        found = [r for s in signals if (r := _after_restart(s, restart, until, ALPHA / len(signals))) is not None]
        looked += _points_after(signals[0], restart, until) >= LOOKS[0]
        if found:
            replays.append(min(found, key=lambda r: r.known_at))
    replays += _anywhere(signals[0], replays)
    judged = [_with_legality(view, replay) for replay in sorted(replays, key=lambda r: r.start)]
    grid = signals[0].grid
    return ReplayFinding(judged, len(grid), grid.stride, looked, [s.metric for s in signals])


@dataclass(frozen=True, slots=True, eq=False)
class _Identity:
    """Lets a cache hold a series by identity."""

    series: Series

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.series is self.series

    def __hash__(self) -> int:
        return id(self.series)


@lru_cache(maxsize=6)
def _signal(metric: str, held: _Identity, restarts: tuple[int, ...]) -> Signal | None:
    series = held.series
    values = series.values
    if metric == "optim/grad_norm":  # its scatter is in proportion to its size
        values = np.log(np.where(values > 0.0, values, np.nan))
    grid = on_grid(series.steps, values)
    if grid is None:
        return None
    standard = residuals(grid.values, [grid.index(r + 1) for r in restarts])
    return Signal(metric, grid, standard) if np.nan_to_num(standard).any() else None


def _points_after(found: Signal, restart: int, until: int | None) -> int:
    first = max(found.grid.index(restart + 1), 0)
    last = len(found.grid) if until is None else min(found.grid.index(until + 1), len(found.grid))
    return max(last - first, 0)


def _after_restart(found: Signal, restart: int, until: int | None, alpha: float) -> Replay | None:
    """Is what follows a restart a copy of something before it?"""
    grid = found.grid
    first, points = max(grid.index(restart + 1), 0), _points_after(found, restart, until)
    past = found.residuals[:first]
    if first < 2 * MIN_LAG:
        return None
    looks = [n for n in LOOKS if n <= points]
    if not looks:
        return None
    # The longest look tells; the shortest finds what ended within it. Those between only say when it was certain.
    for n in (looks[-1], looks[0]):
        match = _look(found, first, n, alpha)
        if match is not None:
            break
    else:
        return None
    certain = next(n for n in looks if n == match.n or _agrees(_look(found, first, n, alpha), match))
    span = min(64, first - match.lag)
    before = 0.0
    if span >= LOOKS[0]:
        before, _ = correlation(past[-span:], past[first - span - match.lag : first - match.lag])
    if before > RHYTHM * match.r:
        return None
    known_at = grid.step(first + certain - 1)
    return _described(found, match, first, _end(found, match.lag, first), restart, known_at, before)


def _look(found: Signal, first: int, n: int, alpha: float) -> Match | None:
    """The first n points after a restart, as they stood when they had come, against all before."""
    fresh = residuals(found.grid.values[first : first + n])
    history = np.concatenate((found.residuals[:first], fresh))
    return best_match(fresh, history, alpha=alpha / len(LOOKS), least=LEAST, min_lag=MIN_LAG)


def _agrees(earlier: Match | None, later: Match) -> bool:
    return earlier is not None and earlier.lag == later.lag


def _anywhere(found: Signal, known: Sequence[Replay]) -> list[Replay]:
    """Replays that begin with no restart, as a loader that begins its pass again would make them."""
    grid, signal_ = found.grid, found.residuals
    hits = recurrences(signal_, min_lag=MIN_LAG_ANYWHERE)
    covered = [(grid.index(r.start), len(grid) if r.end is None else grid.index(r.end)) for r in known]
    made: list[Replay] = []
    for index, lag, r in hits:
        if any(low - WORD <= index < high for low, high in covered):  # an older copy of what is known to repeat
            continue
        evidence = _evidence(found, lag)
        start = _turn(evidence[lag : index + 1][::-1])
        first = lag if start is None else index + 1 - start
        end = _turn(evidence[index:])
        last = len(grid) if end is None else index + end
        covered.append((first, last))
        r, n = correlation(signal_[first:last], signal_[first - lag : last - lag])
        if last - first < SHORTEST or n < SHORTEST or r < LEAST:
            continue
        match = Match(lag, r, n, LEAST, 0.0, len(grid))
        stop = None if end is None else grid.step(last)
        made.append(_described(found, match, first, stop, None, grid.step(min(index + 64, len(grid)) - 1), 0.0))
    return made


def _evidence(found: Signal, lag: int) -> Floats:
    """Per point the evidence for its batch having been read `lag` points earlier; 0 for the first `lag` points."""
    later = same_batch_evidence(found.residuals[lag:], found.residuals[: len(found.residuals) - lag])
    return np.concatenate((np.zeros(lag), later))


def _turn(evidence: Floats) -> int | None:
    """Index from which the evidence speaks against the same batches; None: to the end it does not."""
    turned = episodes(-evidence, TURN)
    return turned[0].onset if turned else None


def _end(found: Signal, lag: int, first: int) -> int | None:
    turned = _turn(_evidence(found, lag)[first:])
    return None if turned is None else found.grid.step(first + turned)


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
    return Replay(
        replay.start, replay.source, replay.lag, replay.end, replay.restart, replay.known_at, replay.metric,
        replay.match, replay.before, legal,
    )  # fmt: skip
