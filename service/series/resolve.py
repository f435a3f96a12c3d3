"""Which of several lanes' points count at each step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.series.live import SegmentInfo, lane_limit, live_limits, oldest_first

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LaneInfo:
    """What one segment wrote of a series about one segment's weights: its place among others, and its last live step.

    Where two lanes are live at a step, the one of higher `rank` counts: the newer segment, then the newer weights.
    """

    segment_id: int
    weights_id: int | None
    rank: tuple[int, int]
    limit: int


class Lanes:
    """The lanes of a run, by (segment id, weights' segment id)."""

    def __init__(self, segments: Sequence[SegmentInfo]) -> None:
        self._limits = live_limits(segments)
        self._places = {segment.id: place for place, segment in enumerate(oldest_first(segments), 1)}

    def __contains__(self, segment_id: int) -> bool:
        return segment_id in self._places

    def info(self, segment_id: int, weights_id: int | None) -> LaneInfo:
        """One lane. Its segment must be one of the run's."""
        limit = lane_limit(self._limits, segment_id, weights_id)
        place = 0 if weights_id is None else self._places.get(weights_id, 0)
        return LaneInfo(segment_id, weights_id, (self._places[segment_id], place), limit)


@dataclass(frozen=True, slots=True)
class LanePoints:
    """Points of one lane, in order of arrival."""

    lane: LaneInfo
    steps: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class Resolved:
    """Points sorted by step; `lanes` (n,) are indices into the lanes that were given; `live` says which count."""

    steps: Ints
    values: Floats
    lanes: Ints
    live: NDArray[np.bool_]


def resolve(parts: Sequence[LanePoints], *, superseded: bool = False) -> Resolved:
    """The live points, one per step; with `superseded` all points, the winner of a step last."""
    trimmed = [(index, _sorted(part if superseded else _within(part))) for index, part in enumerate(parts)]
    ordered = sorted((entry for entry in trimmed if len(entry[1].steps)), key=lambda entry: int(entry[1].steps[0]))
    if not ordered:
        return Resolved(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64), np.empty(0, np.bool_))
    if not superseded and _disjoint([part.steps for _, part in ordered]):
        steps, values, lanes = _join(ordered)
        return Resolved(steps, values, lanes, np.broadcast_to(np.True_, steps.shape))
    ordered.sort(key=lambda entry: entry[1].lane.rank)
    steps, values, lanes = _join(ordered)
    order = np.argsort(steps, kind="stable")
    steps, values, lanes = steps[order], values[order], lanes[order]
    limits = np.array([part.lane.limit for part in parts], np.int64)
    within = steps <= limits[lanes]
    live = np.zeros(len(steps), np.bool_)
    inside = np.flatnonzero(within)
    last = np.append(steps[inside][1:] != steps[inside][:-1], True) if len(inside) else np.empty(0, np.bool_)
    live[inside[last]] = True
    if superseded:
        return Resolved(steps, values, lanes, live)
    return Resolved(steps[live], values[live], lanes[live], live[live])


def _within(part: LanePoints) -> LanePoints:
    inside = part.steps <= part.lane.limit
    if inside.all():
        return part
    return LanePoints(part.lane, part.steps[inside], part.values[inside])


def _sorted(part: LanePoints) -> LanePoints:
    if not np.any(part.steps[1:] < part.steps[:-1]):
        return part
    order = np.argsort(part.steps, kind="stable")
    return LanePoints(part.lane, part.steps[order], part.values[order])


def _disjoint(sorted_steps: Sequence[Ints]) -> bool:
    """Whether arrays sorted by their first step have no step twice and do not interleave."""
    before = -1
    for steps in sorted_steps:
        if int(steps[0]) <= before or np.any(steps[1:] == steps[:-1]):
            return False
        before = int(steps[-1])
    return True


def _join(parts: Sequence[tuple[int, LanePoints]]) -> tuple[Ints, Floats, Ints]:
    if len(parts) == 1:  # nothing to copy
        index, part = parts[0]
        return part.steps, part.values, np.broadcast_to(np.int64(index), part.steps.shape)
    return (
        np.concatenate([part.steps for _, part in parts]),
        np.concatenate([part.values for _, part in parts]),
        np.concatenate([np.full(len(part.steps), index, np.int64) for index, part in parts]),
    )
