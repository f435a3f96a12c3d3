"""Data order identity: does the run read the reference's batches, step by step, and from which step on no longer?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from service.compare.signature import PIECE, Match, best_match, residuals

from .beside import Paired, Whole
from .cache import LevelCache
from .inputs import RunView, Series
from .sequential import Episode
from .signals import CHANNELS, TRAIN

Order = Literal["same", "different", "departs", "cannot tell"]

MIN_PAIRS = 16
CONFIRM = 32  # pairs after a departure before it is said
UNRELATED = 0.6  # correlation after a departure must be below this: half the rows shared is another order too
LOOKS = (32, 48, 64)  # points after a departure (or a restart behind it) with which a shift is looked for
ALPHA = 1e-8
SHIFT_LEAST = 0.8
SPREAD = 8  # points either side of the most likely departure: what the evidence leaves open


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps `first` to `last` of a run with one answer; `r` is the residual correlation over its `n` pairs."""

    first: int
    last: int
    same: bool
    r: float
    n: int


@dataclass(frozen=True, slots=True)
class OrderFinding:
    """The answer as of now. `since`: steps between which the order was left (departs). `shift`: the run reads now what
    the reference read `shift` steps later (negative: earlier), with `match`. `channels`: (metric, correlation, pairs)
    over the newest stretch. `why` says what is missing where it cannot be told."""

    answer: Order
    pairs: int
    why: str = ""
    since: tuple[int, int] | None = None
    stretches: list[Stretch] = field(default_factory=list[Stretch])
    shift: int | None = None
    match: Match | None = None
    channels: list[tuple[str, float, int]] = field(default_factory=list[tuple[str, float, int]])


def find(view: RunView, cache: LevelCache | None = None) -> OrderFinding:
    """Judge the run's data order against the reference's. Causal. With a cache that was given before, what is new is
    looked at."""
    cache = cache or LevelCache()
    mine, theirs = view.metrics.get(TRAIN), view.reference.get(TRAIN)
    if mine is None or theirs is None or len(mine) == 0 or len(theirs) == 0:
        return OrderFinding("cannot tell", 0, "run and reference both need a train loss")
    run, reference = cache.signal(TRAIN, mine, restarts_of(view)), cache.reference_signal(TRAIN, theirs)
    if run is None:
        return OrderFinding("cannot tell", 0, "the run's train loss lies on no even grid of steps")
    first, last = _inside(mine, theirs)
    inside = last - first
    if inside < MIN_PAIRS:
        return OrderFinding("cannot tell", 0, f"{inside} of {MIN_PAIRS} points lie in the reference's range")
    paired = None if reference is None else cache.pairs(TRAIN).advance(run, mine, reference)
    pairs = 0 if paired is None else paired.count(0, len(run))
    if reference is None or paired is None or 2 * pairs < inside:
        near = np.searchsorted(theirs.tokens, mine.tokens[[first, last - 1]])
        why = (
            f"the reference has {int(near[1] - near[0] + 1):,} points where the run has {inside:,}; losses "
            f"of the same single steps are needed, without a gap for at least {MIN_PAIRS} of them"
        )
        return OrderFinding("cannot tell", pairs, why)
    if pairs < MIN_PAIRS:
        return OrderFinding("cannot tell", pairs, f"{pairs} of {MIN_PAIRS} pairs of single steps so far")
    return _judged(view, paired, reference, pairs, cache)


def restarts_of(view: RunView) -> tuple[int, ...]:
    """Updates made at each trainer start but the first."""
    return tuple(sorted({s.start_step for s in view.segments if s.start_step > 0}))


def _inside(mine: Series, theirs: Series) -> tuple[int, int]:
    """The run's first point in the reference's token range, and the one after its last."""
    first = int(np.searchsorted(mine.tokens, float(theirs.tokens[0])))
    last = int(np.searchsorted(mine.tokens, float(theirs.tokens[-1]), side="right"))
    return first, max(first, last)


def _judged(view: RunView, paired: Paired, reference: Whole, pairs: int, cache: LevelCache) -> OrderFinding:
    run = paired.run
    stretches = _stretches(paired)
    newest = stretches[-1]
    start = run.grid.index(newest.first)
    channels = _channels(view, paired, start, cache)
    if newest.same:
        if newest.n < MIN_PAIRS or newest.r < UNRELATED:
            why = f"the residuals of the newest {newest.n} pairs correlate by {newest.r:.2f}: neither one nor the other"
            return OrderFinding("cannot tell", pairs, why, stretches=stretches, channels=channels)
        return OrderFinding("same", pairs, stretches=stretches, channels=channels)
    if newest.n < CONFIRM:
        why = f"the newest {newest.n} of {CONFIRM} pairs differ"
        return OrderFinding("cannot tell", pairs, why, stretches=stretches, channels=channels)
    shift, match = _shifted(view, paired, reference, start, cache)
    since = None
    if any(s.same for s in stretches):
        spread = SPREAD * run.grid.stride
        since = (newest.first - spread, newest.first + spread)
    answer: Order = "different" if since is None else "departs"
    return OrderFinding(answer, pairs, "", since, stretches, shift, match, channels)


def _stretches(paired: Paired) -> list[Stretch]:
    """The run cut where its order leaves the reference's or comes back to it."""
    run = paired.run
    first, last = _known(paired)
    cuts: list[tuple[int, int]] = []
    for episode in paired.chart.episodes:
        begin, end, r, n = _cut(paired, episode, last)
        if r < UNRELATED or n < MIN_PAIRS:
            cuts.append((max(begin, first), end))
    if cuts and paired.count(first, cuts[0][0]) < MIN_PAIRS:
        cuts[0] = (first, cuts[0][1])
    edges = [(first, False), *((place, i % 2 == 0) for i, place in enumerate(p for cut in cuts for p in cut))]
    made: list[Stretch] = []
    for i, (begin, differs) in enumerate(edges):
        end = edges[i + 1][0] if i + 1 < len(edges) else last + 1
        if end > begin:
            r, n = paired.correlation(begin, end)
            made.append(Stretch(run.grid.step(begin), run.grid.step(end - 1), not differs, r, n))
    return made


def _cut(paired: Paired, episode: Episode, last: int) -> tuple[int, int, float, int]:
    """Where an episode of other batches begins and ends, with the correlation there, and of how many pairs."""

    def measured() -> tuple[int, int, float, int]:
        end = last + 1 if episode.end is None else _return(paired, episode.alarm, episode.end)
        return episode.onset, end, *paired.correlation(episode.onset, end)

    settled = episode.end is not None and episode.end < len(paired.settled)
    return paired.memory.remember(episode, (episode.end or 0) + 1, measured) if settled else measured()


def _return(paired: Paired, alarm: int, end: int) -> int:
    """Where the evidence against was highest before it fell: the first point of the reference's order again."""
    total = np.cumsum(-paired.evidence(alarm, end + 1))
    return alarm + int(np.argmax(total)) + 1


def _known(paired: Paired) -> tuple[int, int]:
    """The first and the last point that has a pair."""
    n = len(paired.run)

    def place(begin: int, end: int, which: int) -> int | None:
        both = np.flatnonzero(np.isfinite(paired.run.part(begin, end)) & np.isfinite(paired.other(begin, end)))
        return begin + int(both[which]) if len(both) else None

    starts = range(0, n, PIECE)
    first = next(at for begin in starts if (at := place(begin, min(begin + PIECE, n), 0)) is not None)
    last = next(at for begin in reversed(starts) if (at := place(begin, min(begin + PIECE, n), -1)) is not None)
    return first, last


def _shifted(
    view: RunView, paired: Paired, reference: Whole, start: int, cache: LevelCache
) -> tuple[int | None, Match | None]:
    """Where in the reference the run's batches stand since it left the order, or since the newest start of the trainer
    after that, if anywhere: data behind or ahead of the weights."""
    run = paired.run
    since = [b for b in run.breaks if b >= start - SPREAD and len(run) - b >= LOOKS[0]]
    begin = since[-1] if since else start + SPREAD
    looks = [n for n in LOOKS if n <= len(run) - begin]
    if run.grid.stride != reference.grid.stride or not looks:
        return None, None
    window = run.grid.values[begin : begin + looks[-1]]
    match = cache.track(TRAIN).memory.remember(
        ("shift", reference, begin, len(window)), begin + len(window),
        lambda: best_match(residuals(window), reference.residuals, alpha=ALPHA, least=SHIFT_LEAST, min_lag=0),
    )  # fmt: skip
    if match is None:
        return None, None
    read = reference.grid.step(len(reference.grid) - 1 - match.lag)
    mine, theirs = view.metrics[TRAIN], view.reference[TRAIN]
    point = int(np.searchsorted(mine.steps, run.grid.step(begin + len(window) - 1)))
    here = float(np.interp(float(mine.tokens[min(point, len(mine) - 1)]), theirs.tokens, theirs.steps))
    return round(read - here), match


def _channels(view: RunView, paired: Paired, start: int, cache: LevelCache) -> list[tuple[str, float, int]]:
    made = [(TRAIN, *paired.correlation(start, len(paired.run)))]
    step = paired.run.grid.step(start)
    for metric in CHANNELS[1:]:
        mine, theirs = view.metrics.get(metric), view.reference.get(metric)
        if mine is None or theirs is None or len(mine) == 0 or len(theirs) == 0:
            continue
        run, reference = cache.signal(metric, mine, restarts_of(view)), cache.reference_signal(metric, theirs)
        if run is not None and reference is not None:
            beside = cache.pairs(metric).advance(run, mine, reference)
            made.append((metric, *beside.correlation(max(run.grid.index(step), 0), len(run))))
    return made
