"""Which points of a run count, and where they stand on the token axis. Pure: no database.

A trainer segment that starts after step s supersedes every older trainer point beyond s, and the evaluations of those
weights; import segments supersede step by step; an evaluator supersedes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NO_LIMIT = 2**62  # beyond every step
AWAITED = "awaited"  # kind of a row that keeps the place of a segment which was named but not announced yet


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment as the rules see it.

    `generation` counts from the oldest ancestor of a forked run (the run itself has the highest); `cap` is the last
    step that the run keeps of it (NO_LIMIT for its own). `ramp` is ((from_step, tokens_per_step), …), ascending: the
    update that makes step S consumes what the last entry with from_step <= S says.
    """

    id: int
    uuid: UUID
    run_id: int
    kind: str  # trainer | evaluator | import
    start_step: int
    started_at: float
    start_tokens: float | None = None
    tokens_per_step: int | None = None
    ramp: tuple[tuple[int, int], ...] = ()
    generation: int = 0
    cap: int = NO_LIMIT

    @property
    def order(self) -> tuple[int, float, str]:
        """Sorts oldest first: by generation, start, and the id where starts are equal."""
        return (self.generation, self.started_at, str(self.uuid))


def oldest_first(segments: Sequence[SegmentInfo]) -> list[SegmentInfo]:
    """The segments in the order in which they supersede each other."""
    return sorted(segments, key=lambda segment: segment.order)


def live_limits(segments: Sequence[SegmentInfo]) -> dict[int, int]:
    """Segment id -> the last step at which its own points count. Evaluators and imports are bounded by `cap` alone."""
    limits: dict[int, int] = {}
    limit = NO_LIMIT
    for segment in reversed(oldest_first(segments)):
        trainer = segment.kind == "trainer"
        limits[segment.id] = min(segment.cap, limit) if trainer else segment.cap
        if trainer:
            limit = min(limit, segment.start_step)
    return limits


def lane_limit(limits: Mapping[int, int], segment_id: int, weights_id: int | None) -> int:
    """The last live step of what a segment wrote about the weights of another (None: its own, or unknown)."""
    limit = limits.get(segment_id, NO_LIMIT)
    return limit if weights_id is None else min(limit, limits.get(weights_id, NO_LIMIT))


def trainers_at(steps: Ints, trainers: Sequence[SegmentInfo]) -> Ints:
    """For each step the index in `trainers` (oldest first) of the live segment whose weights they are, -1 if none.

    That is the newest one that starts before the step; at its very start step the weights are still the older one's,
    unless there is no older one.
    """
    owner = np.full(len(steps), -1, np.int64)
    for index, trainer in enumerate(trainers):
        mine = steps > trainer.start_step
        if not mine.all():
            mine |= (owner < 0) & (steps == trainer.start_step)
        owner[mine] = index
    return owner


@dataclass(frozen=True, slots=True)
class GivenTokens:
    """Tokens that a segment gave itself: `steps` ascending without repeats, `tokens` cumulative within the stage."""

    steps: Ints
    tokens: Floats


def consumed(segment: SegmentInfo, steps: Ints) -> Floats | None:
    """Tokens that updates 1…S consume by the segment's own plan, None if it has none. Shape of `steps`."""
    if not segment.ramp:
        return None if segment.tokens_per_step is None else steps.astype(np.float64) * segment.tokens_per_step
    starts = np.array([0] + [start - 1 for start, _ in segment.ramp[1:]], np.int64)  # steps before each change
    rates: Floats = np.array([rate for _, rate in segment.ramp], np.float64)
    before = np.concatenate([[0.0], np.cumsum(np.diff(starts) * rates[:-1])])
    entry = np.searchsorted(starts, steps, side="right") - 1
    return np.asarray(before[entry] + (steps - starts[entry]) * rates[entry], np.float64)


class TokenAxis:
    """Tokens at steps of a run, on the project's axis.

    `given` maps segment ids to what their trainers said per point; `offset` is where the stage begins on the axis.
    """

    def __init__(
        self, segments: Sequence[SegmentInfo], given: Mapping[int, GivenTokens] | None = None, offset: float = 0.0
    ) -> None:
        self._segments = {segment.id: segment for segment in segments}
        self._trainers = [segment for segment in oldest_first(segments) if segment.kind == "trainer"]
        self._given = given or {}
        self._offset = offset
        self._bases: dict[int, float] = {}
        for trainer in self._trainers:  # oldest first, so that a base never recurses over all restarts
            self._base(trainer)

    @property
    def given(self) -> Mapping[int, GivenTokens]:
        """What the trainers said per point, by segment."""
        return self._given

    def of(self, steps: Ints, segment_id: int, weights_id: int | None = None) -> Floats:
        """Tokens consumed at `steps` (n,) as logged by one segment about one segment's weights; NaN where unknown."""
        segment = self._segments[segment_id]
        if weights_id is not None and weights_id in self._segments:
            return self._own(self._segments[weights_id], steps) + self._offset
        if segment.kind != "evaluator":
            return self._own(segment, steps) + self._offset
        tokens = self._own(segment, steps)
        owners = trainers_at(steps, self._trainers)
        for index in np.unique(owners[owners >= 0]):
            mine = owners == index
            tokens[mine] = self._own(self._trainers[int(index)], steps[mine])
        return tokens + self._offset

    def _own(self, segment: SegmentInfo, steps: Ints) -> Floats:
        plan = consumed(segment, steps)
        given = self._given.get(segment.id)
        if given is None or len(given.steps) == 0:
            if plan is None:
                known = self._base(segment)
                return np.where(steps == segment.start_step, known, np.nan)
            at_start = consumed(segment, np.array([segment.start_step]))
            assert at_start is not None
            return self._base(segment) - at_start[0] + plan
        if plan is None:
            return np.interp(steps, given.steps, given.tokens, left=np.nan, right=np.nan)
        anchor = np.searchsorted(given.steps, steps, side="right") - 1
        near = given.steps[np.maximum(anchor, 0)]
        plan_near = consumed(segment, near)
        assert plan_near is not None
        return given.tokens[np.maximum(anchor, 0)] + (plan - plan_near)

    def _base(self, segment: SegmentInfo) -> float:
        """Tokens at the segment's start step, within the stage."""
        if segment.start_tokens is not None:
            return segment.start_tokens
        if segment.id not in self._bases:
            self._bases[segment.id] = self._find_base(segment)
        return self._bases[segment.id]

    def _find_base(self, segment: SegmentInfo) -> float:
        start = np.array([segment.start_step], np.int64)
        older = self._trainers[: bisect_right(self._trainers, segment.order, key=lambda s: s.order)]
        for candidate in reversed(older):
            if candidate.id != segment.id and candidate.start_step <= segment.start_step:
                tokens = float(self._own(candidate, start)[0])
                if not np.isnan(tokens):
                    return tokens
                break
        plan = consumed(segment, start)
        if plan is not None:
            return float(plan[0])
        return 0.0 if segment.start_step == 0 else float("nan")


def tokens_of(
    steps: Ints,
    segment_id: int,
    segments: Sequence[SegmentInfo],
    *,
    weights_id: int | None = None,
    given: Mapping[int, GivenTokens] | None = None,
    offset: float = 0.0,
) -> Floats:
    """Tokens at `steps` (n,) of points that `segment_id` wrote, on the project's axis; NaN where nothing tells them."""
    return TokenAxis(segments, given, offset).of(steps, segment_id, weights_id)
