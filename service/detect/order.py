"""Data order identity: does the run read the reference's batches, step by step, and from which step on no longer?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from service.compare.signature import Match, best_match, correlation, same_batch_evidence

from .batches import CHANNELS, TRAIN, Signal, signal
from .inputs import Floats, Ints, RunView
from .sequential import episodes

Order = Literal["same", "different", "departs", "cannot tell"]

MIN_PAIRS = 16
CONFIRM = 32  # pairs after a departure before it is said
UNRELATED = 0.6  # correlation after a departure must be below this: half the rows shared is another order too
TURN = 20.0  # evidence in nats that turns the answer
SEARCH = 64  # newest pairs with which a shift of the reference's order is looked for
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


def find(view: RunView) -> OrderFinding:
    """Judge the run's data order against the reference's. Causal."""
    mine, theirs = view.metrics.get(TRAIN), view.reference.get(TRAIN)
    if mine is None or theirs is None or len(mine) == 0 or len(theirs) == 0:
        return OrderFinding("cannot tell", 0, "run and reference both need a train loss")
    restarts = tuple(sorted({s.start_step for s in view.segments if s.start_step > 0}))
    run, reference = signal(TRAIN, mine, restarts), signal(TRAIN, theirs)
    if run is None:
        return OrderFinding("cannot tell", 0, "the run's train loss lies on no even grid of steps")
    inside = (mine.tokens >= theirs.tokens[0]) & (mine.tokens <= theirs.tokens[-1])
    if inside.sum() < MIN_PAIRS:
        return OrderFinding("cannot tell", 0, f"{int(inside.sum())} of {MIN_PAIRS} points lie in the reference's range")
    other = None if reference is None else paired_residuals(view, TRAIN, run, reference)
    pairs = 0 if other is None else int((np.isfinite(other) & np.isfinite(run.residuals)).sum())
    if reference is None or other is None or 2 * pairs < inside.sum():
        near = np.searchsorted(theirs.tokens, mine.tokens[inside][[0, -1]])
        why = (
            f"the reference has {int(near[1] - near[0] + 1):,} points where the run has {int(inside.sum()):,}; losses "
            f"of the same single steps are needed, without a gap for at least {MIN_PAIRS} of them"
        )
        return OrderFinding("cannot tell", pairs, why)
    if pairs < MIN_PAIRS:
        return OrderFinding("cannot tell", pairs, f"{pairs} of {MIN_PAIRS} pairs of single steps so far")
    return _judged(view, run, reference, other, pairs)


def paired_residuals(view: RunView, metric: str, run: Signal, reference: Signal) -> Floats:
    """The reference's residuals (n,) at the run's grid points, by equal tokens; NaN where it has none."""
    mine, theirs = view.metrics[metric], view.reference[metric]
    spacing = float(np.median(np.diff(theirs.tokens))) if len(theirs) > 1 else 1.0
    at = np.clip(np.searchsorted(theirs.tokens, mine.tokens - 0.5 * spacing), 0, len(theirs) - 1)
    met = np.abs(theirs.tokens[at] - mine.tokens) <= 1e-3 * max(spacing, 1e-9)
    out = np.full(len(run.grid), np.nan)
    from_index, off = _places(reference, theirs.steps[at])
    to_index, missing = _places(run, mine.steps)
    use = met & ~off & ~missing
    out[to_index[use]] = reference.residuals[from_index[use]]
    return out


def _places(found: Signal, steps: Ints) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    grid = found.grid
    index, rest = np.divmod(steps - grid.first_step, grid.stride)
    return index, (rest != 0) | (index < 0) | (index >= len(grid))


def _judged(view: RunView, run: Signal, reference: Signal, other: Floats, pairs: int) -> OrderFinding:
    stretches = _stretches(run, other)
    newest = stretches[-1]
    start = run.grid.index(newest.first)
    channels = _channels(view, run, other, start)
    if newest.same:
        if newest.n < MIN_PAIRS or newest.r < UNRELATED:
            why = f"the residuals of the newest {newest.n} pairs correlate by {newest.r:.2f}: neither one nor the other"
            return OrderFinding("cannot tell", pairs, why, stretches=stretches, channels=channels)
        return OrderFinding("same", pairs, stretches=stretches, channels=channels)
    if newest.n < CONFIRM:
        why = f"the newest {newest.n} of {CONFIRM} pairs differ"
        return OrderFinding("cannot tell", pairs, why, stretches=stretches, channels=channels)
    shift, match = _shifted(run, reference, start, view)
    since = None
    if any(s.same for s in stretches):
        spread = SPREAD * run.grid.stride
        since = (newest.first - spread, newest.first + spread)
    answer: Order = "different" if since is None else "departs"
    return OrderFinding(answer, pairs, "", since, stretches, shift, match, channels)


def _stretches(run: Signal, other: Floats) -> list[Stretch]:
    """The run cut where its order leaves the reference's or comes back to it."""
    evidence = same_batch_evidence(run.residuals, other)
    known = np.flatnonzero(np.isfinite(run.residuals) & np.isfinite(other))
    first, last = int(known[0]), int(known[-1])
    cuts: list[tuple[int, int]] = []
    for episode in episodes(-evidence[first : last + 1], TURN, TURN):
        begin = first + episode.onset
        end = last + 1 if episode.end is None else _return(evidence, first + episode.alarm, first + episode.end)
        r, n = correlation(run.residuals[begin:end], other[begin:end])
        if r < UNRELATED or n < MIN_PAIRS:
            cuts.append((begin, end))
    if cuts and _count(run, other, first, cuts[0][0]) < MIN_PAIRS:
        cuts[0] = (first, cuts[0][1])
    edges = [(first, False), *((place, i % 2 == 0) for i, place in enumerate(p for cut in cuts for p in cut))]
    made: list[Stretch] = []
    for i, (begin, differs) in enumerate(edges):
        end = edges[i + 1][0] if i + 1 < len(edges) else last + 1
        if end > begin:
            r, n = correlation(run.residuals[begin:end], other[begin:end])
            made.append(Stretch(run.grid.step(begin), run.grid.step(end - 1), not differs, r, n))
    return made


def _return(evidence: Floats, alarm: int, end: int) -> int:
    """Where the evidence against was highest before it fell: the first point of the reference's order again."""
    total = np.cumsum(-evidence[alarm : end + 1])
    return alarm + int(np.argmax(total)) + 1


def _count(run: Signal, other: Floats, begin: int, end: int) -> int:
    return int((np.isfinite(run.residuals[begin:end]) & np.isfinite(other[begin:end])).sum())


def _shifted(run: Signal, reference: Signal, start: int, view: RunView) -> tuple[int | None, Match | None]:
    """Where in the reference the run's newest batches stand, if anywhere: data behind or ahead of the weights."""
    window = run.residuals[max(start, len(run.grid) - SEARCH) :]
    if run.grid.stride != reference.grid.stride or len(window) < MIN_PAIRS:
        return None, None
    match = best_match(window, reference.residuals, alpha=ALPHA, least=SHIFT_LEAST, min_lag=0)
    if match is None:
        return None, None
    newest = reference.grid.step(len(reference.grid) - 1 - match.lag)
    mine, theirs = view.metrics[TRAIN], view.reference[TRAIN]
    here = float(np.interp(float(mine.tokens[-1]), theirs.tokens, theirs.steps.astype(np.float64)))
    return round(newest - here), match


def _channels(view: RunView, run: Signal, other: Floats, start: int) -> list[tuple[str, float, int]]:
    made = [(TRAIN, *correlation(run.residuals[start:], other[start:]))]
    restarts = tuple(sorted({s.start_step for s in view.segments if s.start_step > 0}))
    for metric in CHANNELS[1:]:
        mine, theirs = view.metrics.get(metric), view.reference.get(metric)
        if mine is None or theirs is None or len(mine) == 0 or len(theirs) == 0:
            continue
        ours, base = signal(metric, mine, restarts), signal(metric, theirs)
        if ours is not None and base is not None:
            beside = paired_residuals(view, metric, ours, base)
            begin = max(ours.grid.index(run.grid.step(start)), 0)
            made.append((metric, *correlation(ours.residuals[begin:], beside[begin:])))
    return made
