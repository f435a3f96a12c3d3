"""A series in as many buckets as there are pixels, from summaries where they are fine enough. Pure.

A `Plan` says which chunks it needs decoded; who has the database fetches them:

    plan = Plan(pieces, first, last)
    plan.settle(decode(plan.unsettled()))           # chunks that overlap, or are cut by a limit or the window
    cells = plan.cells(points, decode(plan.too_coarse(points)))

Buckets are aligned to the step axis and a power of two wide, so the same question has the same answer until data come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.series.cells import Cells, cells_of, join, widen
from service.series.chunks import cell_width, unpack_summary
from service.series.live import NO_LIMIT
from service.series.resolve import LaneInfo, LanePoints, resolve

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
ChunkKey = tuple[int, int, int]  # run, metric, number
Decoded = Mapping[ChunkKey, tuple[Ints, Floats]]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one lane, sorted by step: a sealed chunk (`key`), or `points` from the journal."""

    lane: LaneInfo
    first_step: int
    last_step: int
    count: int
    repeats: bool = False
    cell: int = 0
    summary: bytes = b""
    key: ChunkKey | None = None
    points: tuple[Ints, Floats] | None = None


@dataclass(frozen=True, slots=True)
class _Exact:
    """Live points that no other part reaches into. `lanes` (n,) are indices into `written_by`."""

    steps: Ints
    values: Floats
    lanes: Ints
    written_by: Sequence[LaneInfo]


@dataclass(frozen=True, slots=True)
class Buckets:
    """The cells of an overview; `lanes` (m,) are indices into `written_by`: who wrote each cell's last point."""

    cells: Cells
    lanes: Ints
    written_by: Sequence[LaneInfo]


class Plan:
    """An overview of the pieces of one series between two steps (inclusive)."""

    def __init__(self, pieces: Sequence[Piece], first_step: int, last_step: int) -> None:
        self._first, self._last = first_step, last_step
        reached = [piece for piece in pieces if piece.first_step <= self._end(piece) and piece.last_step >= first_step]
        self._groups = self._grouped(sorted(reached, key=lambda piece: piece.first_step))
        self._exact: dict[int, _Exact] = {}

    def _end(self, piece: Piece) -> int:
        return min(piece.last_step, piece.lane.limit, self._last)

    def _grouped(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        """Pieces whose live steps interleave belong together."""
        groups: list[list[Piece]] = []
        reach = -1
        for piece in pieces:
            if groups and max(piece.first_step, self._first) <= reach:
                groups[-1].append(piece)
            else:
                groups.append([piece])
            reach = max(reach, self._end(piece))
        return groups

    def _whole(self, group: list[Piece]) -> bool:
        """Whether a group is one chunk of which every point counts."""
        piece = group[0]
        inside = piece.first_step >= self._first and piece.last_step == self._end(piece)
        return len(group) == 1 and inside and piece.cell > 0

    def unsettled(self) -> list[ChunkKey]:
        """The chunks whose points must be looked at to know which of them count."""
        return [p.key for group in self._groups if not self._whole(group) for p in group if p.key is not None]

    def settle(self, decoded: Decoded) -> None:
        """Decide which points of those chunks count."""
        groups: list[list[Piece]] = []
        for group in self._groups:
            if not self._whole(group):
                exact = self._resolved(group, decoded)
                if len(exact.steps) == 0:
                    continue
                self._exact[len(groups)] = exact
            groups.append(group)
        self._groups = groups

    def _resolved(self, group: list[Piece], decoded: Decoded) -> _Exact:
        parts: list[LanePoints] = []
        for piece in sorted(group, key=lambda p: NO_LIMIT if p.key is None else p.key[2]):  # in order of arrival
            points = piece.points if piece.key is None else decoded[piece.key]
            assert points is not None
            parts.append(LanePoints(piece.lane, *points))
        parts = _joined(parts)
        found = resolve(parts)
        inside = (found.steps >= self._first) & (found.steps <= self._last)
        written_by = [part.lane for part in parts]
        return _Exact(found.steps[inside], found.values[inside], found.lanes[inside], written_by)

    def width(self, points: int) -> int:
        """Steps per bucket, so that there are at most `points` buckets; 1 where every point fits."""
        if not self._groups or sum(self._count(n) for n in range(len(self._groups))) <= points:
            return 1
        last = len(self._groups) - 1
        first_step = int(self._exact[0].steps[0]) if 0 in self._exact else self._groups[0][0].first_step
        last_step = int(self._exact[last].steps[-1]) if last in self._exact else self._groups[last][0].last_step
        return cell_width(first_step, last_step, points)

    def _count(self, number: int) -> int:
        return len(self._exact[number].steps) if number in self._exact else self._groups[number][0].count

    def too_coarse(self, points: int) -> list[ChunkKey]:
        """The chunks whose summary has wider cells than the buckets are."""
        return [piece.key for piece in self._coarse(self.width(points)) if piece.key is not None]

    def _coarse(self, width: int) -> list[Piece]:
        whole = [group[0] for number, group in enumerate(self._groups) if number not in self._exact]
        return [piece for piece in whole if piece.cell > width]

    def cells(self, points: int, decoded: Decoded) -> Buckets | None:
        """At most `points` buckets; None if nothing counts."""
        if not self._groups:
            return None
        width = self.width(points)
        parts: list[Cells] = []
        lanes: list[Ints] = []
        written_by: list[LaneInfo] = []
        for number, group in enumerate(self._groups):
            if number in self._exact:
                exact = self._exact[number]
                cells = cells_of(exact.steps, exact.values, width)
                lane = exact.lanes[np.searchsorted(exact.steps, cells.last_steps)] + len(written_by)
                written_by.extend(exact.written_by)
            else:
                piece = group[0]
                points_of = None if piece.key is None else decoded.get(piece.key)
                cells = unpack_summary(piece.summary) if points_of is None else cells_of(*points_of, width)
                lane = np.full(len(cells), len(written_by), np.int64)
                written_by.append(piece.lane)
            parts.append(cells)
            lanes.append(lane)
        narrow = join(parts)
        wide = widen(narrow, width)
        owners = np.concatenate(lanes)[np.searchsorted(narrow.last_steps, wide.last_steps)]
        return Buckets(wide, owners, written_by)


def _joined(parts: Sequence[LanePoints]) -> list[LanePoints]:
    """Pieces of the same lane as one, in the order in which they are given."""
    by_lane: dict[tuple[int, int | None], list[LanePoints]] = {}
    for part in parts:
        by_lane.setdefault((part.lane.segment_id, part.lane.weights_id), []).append(part)
    return [
        group[0]
        if len(group) == 1
        else LanePoints(
            group[0].lane,
            np.concatenate([part.steps for part in group]),
            np.concatenate([part.values for part in group]),
        )
        for group in by_lane.values()
    ]
