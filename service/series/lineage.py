"""A run's segments, and those of the runs it was forked from, as the rules of supersession see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import BindParameter, Table, bindparam, select
from sqlalchemy.orm import Session

from service.database.models import Run, RunState, Segment
from service.series.live import AWAITED, NO_LIMIT, SegmentInfo

_RUNS: Table = Run.__table__  # pyright: ignore[reportAssignmentType]
_STATES: Table = RunState.__table__  # pyright: ignore[reportAssignmentType]
_PARTS: Table = Segment.__table__  # pyright: ignore[reportAssignmentType]

# Statements are built once: building them costs as much as running them.
_SOME: BindParameter[Sequence[int]] = bindparam("runs", expanding=True)
_RUN = (
    select(
        _RUNS.c.id,
        _RUNS.c.forked_from,
        _RUNS.c.forked_at_step,
        _RUNS.c.token_offset,
        _RUNS.c.created_at,
        _STATES.c.data_version,
    )
    .select_from(_RUNS.outerjoin(_STATES, _STATES.c.run_id == _RUNS.c.id))
    .where(_RUNS.c.id.in_(_SOME))
)
_SEGMENTS = select(
    _PARTS.c.run_id,
    _PARTS.c.id,
    _PARTS.c.uuid,
    _PARTS.c.kind,
    _PARTS.c.start_step,
    _PARTS.c.started_at,
    _PARTS.c.start_tokens,
    _PARTS.c.tokens_per_step,
    _PARTS.c.ramp,
    _PARTS.c.finished_at,
).where(_PARTS.c.run_id.in_(_SOME), _PARTS.c.kind != AWAITED)


@dataclass(frozen=True, slots=True)
class Lineage:
    """A run (last in `run_ids`) and its ancestors, oldest first.

    `token_offset` is where the run's stage begins. `version` changes with every change of their data, also if a
    database is made anew.
    """

    run_ids: list[int]
    segments: list[SegmentInfo]
    token_offset: float
    version: str


def lineage(session: Session, run_id: int) -> Lineage:
    """The run's lineage. A fork keeps what its parent had up to the fork's step, as it was live when the fork began."""
    generations: list[tuple[int, list[SegmentInfo], int]] = []
    versions: list[str] = []
    cap, began = NO_LIMIT, float("inf")
    offset = 0.0
    next_id: int | None = run_id
    while next_id is not None:
        run = session.connection().execute(_RUN, {"runs": [next_id]}).one_or_none()
        if run is None:
            break
        segments = [segment for segment in _segments(session, run.id) if segment.started_at < began]
        generations.append((run.id, segments, cap))
        versions.append(_version(run))
        offset = run.token_offset if len(generations) == 1 else offset
        next_id = None
        if run.forked_from is not None and run.forked_at_step is not None and segments:
            cap = min(cap, run.forked_at_step)
            began = min(segment.started_at for segment in segments)
            parent = session.scalar(select(Run.id).where(Run.uuid == run.forked_from))
            if parent is not None and parent not in {run for run, _, _ in generations}:
                next_id = parent
    generations.reverse()
    placed = [
        replace(segment, generation=place, cap=cap)
        for place, (_, segments, cap) in enumerate(generations)
        for segment in segments
    ]
    return Lineage([run for run, _, _ in generations], placed, offset, "-".join(versions))


@dataclass(frozen=True, slots=True)
class Stand:
    """The lineage of a run that was forked from none, the key of its newest segment, and how many have ended."""

    line: Lineage
    newest: int
    finished: int


def stands(session: Session, run_ids: Sequence[int]) -> dict[int, Stand]:
    """How many runs stand, by two queries; those that were forked from others are left out."""
    connection = session.connection()
    segments: dict[int, list[Any]] = {}
    for row in connection.execute(_SEGMENTS, {"runs": run_ids}):
        segments.setdefault(row.run_id, []).append(row)
    found: dict[int, Stand] = {}
    for run in connection.execute(_RUN, {"runs": run_ids}):
        if run.forked_from is None:
            mine = segments.get(run.id, [])
            placed = [replace(_segment(row), generation=0, cap=NO_LIMIT) for row in mine]
            ended = sum(row.finished_at is not None for row in mine)
            newest = max((row.id for row in mine), default=0)
            found[run.id] = Stand(Lineage([run.id], placed, run.token_offset, _version(run)), newest, ended)
    return found


def _version(run: Any) -> str:
    return f"{run.id}.{run.created_at}.{run.data_version or 0}"


def _segments(session: Session, run_id: int) -> list[SegmentInfo]:
    return [_segment(row) for row in session.connection().execute(_SEGMENTS, {"runs": [run_id]})]


def _segment(row: Any) -> SegmentInfo:
    return SegmentInfo(
        row.id,
        row.uuid,
        row.run_id,
        row.kind,
        row.start_step,
        row.started_at,
        row.start_tokens,
        row.tokens_per_step,
        tuple((int(step), int(rate)) for step, rate in row.ramp or ()),
    )
