"""Reading runs: from the small state tables where a list is wanted, with segments and verdict where one run is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Select, and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from service.database.models import (
    Alert,
    Event,
    ItemResult,
    Project,
    Run,
    RunState,
    RunWork,
    Segment,
    VerdictRow,
)
from service.runs.cursor import Place, decode, encode
from service.runs.listing import Listing, chosen, sort_key
from service.series.lineage import lineage
from service.series.live import AWAITED, NO_LIMIT, live_limits


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run with what its pages begin with. `project` is a slug, `open_alerts` counts firing and acknowledged ones."""

    run: Run
    project: str
    state: RunState | None
    verdict: VerdictRow | None
    open_alerts: int


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment and its last live step: None where nothing supersedes it."""

    segment: Segment
    live_to_step: int | None

    @property
    def superseded(self) -> bool:
        """Whether nothing of it is live."""
        return self.live_to_step is not None and self.live_to_step <= self.segment.start_step


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """A project and how many runs of each role it holds."""

    project: Project
    references: int
    reproductions: int


class RunRepository:
    """Runs, their state and their events."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def projects(self) -> list[ProjectRow]:
        """Every project, by slug."""
        count = func.count(Run.id)
        found = (
            select(Project, count.filter(Run.role == "reference"), count.filter(Run.role == "reproduction"))
            .outerjoin(Run, Run.project_id == Project.id)
            .group_by(Project.id)
            .order_by(Project.slug)
        )
        return [ProjectRow(*row) for row in self.session.execute(found)]

    def by_uuid(self, uuid: UUID) -> Run | None:
        """The run with this public id."""
        return self.session.scalars(select(Run).where(Run.uuid == uuid)).one_or_none()

    def row(self, uuid: UUID) -> RunRow | None:
        """The run with this public id and what its page begins with."""
        row = self.session.execute(_rows().where(Run.uuid == uuid)).one_or_none()
        return None if row is None else RunRow(*row)

    def forks(self, uuid: UUID) -> list[Run]:
        """The runs that went out from this one, by when they began."""
        return list(self.session.scalars(select(Run).where(Run.forked_from == uuid).order_by(Run.created_at, Run.id)))

    def page(self, listing: Listing, limit: int = 50) -> tuple[list[RunRow], str | None]:
        """Runs as asked for, and the cursor of the next page: None at the end, so no later page is empty.

        Raises:
            InvalidError: the cursor was not made here, or for another order.
        """
        query = chosen(_rows(), listing, _OPEN_ALERTS).add_columns(sort_key(listing.sort, _OPEN_ALERTS))
        found = self.session.execute(query.limit(limit + 1)).all()
        places: list[Place] = [(row[-1], row[0].id) for row in found]
        return [RunRow(*row[:-1]) for row in found[:limit]], _next(places, limit)

    def set_archived(self, run_id: int, at: float | None) -> None:
        """Take a run out of the way of lists since `at` (unix seconds), or back: None."""
        self.session.execute(update(Run).where(Run.id == run_id).values(archived_at=at))

    def state(self, run_id: int) -> RunState | None:
        """How far the run's data has come."""
        return self.session.get(RunState, run_id)

    def judged_version(self, run_id: int) -> int:
        """The data version that the last judgement saw, 0 before the first."""
        work = self.session.get(RunWork, (run_id, "judge"))
        return work.done_version if work else 0

    def segments(self, run_id: int) -> list[SegmentRow]:
        """Every segment in order of launch, with its last live step."""
        announced = select(Segment).where(Segment.run_id == run_id, Segment.kind != AWAITED)
        found = announced.order_by(Segment.started_at, Segment.uuid)
        segments = list(self.session.scalars(found))
        limits = live_limits(lineage(self.session, run_id).segments)
        bounds = {segment: limit for segment, limit in limits.items() if limit < NO_LIMIT}
        return [SegmentRow(segment, bounds.get(segment.id)) for segment in segments]

    def finished(self, run_id: int) -> int:
        """How many of the run's segments have ended."""
        return self.session.connection().execute(_FINISHED, {"run": run_id}).scalar() or 0

    def live_segments(self, run_id: int) -> list[Segment]:
        """Segments that still have live steps, in order of launch."""
        return [row.segment for row in self.segments(run_id) if not row.superseded]

    def live_events(self, run_id: int, kinds: Iterable[str]) -> list[Event]:
        """Events of these kinds that nothing supersedes, by step; a fork's begin with its parent's."""
        limits = live_limits(lineage(self.session, run_id).segments)
        found = select(Event).where(Event.segment_id.in_(limits), Event.kind.in_(kinds)).order_by(Event.step, Event.id)
        return [event for event in self.session.scalars(found) if event.step <= limits[event.segment_id]]

    def live_items(self, run_id: int) -> list[ItemResult]:
        """Per-item results that nothing supersedes, by task and step; of those sent twice the later ones come last."""
        limits = live_limits(lineage(self.session, run_id).segments)
        found = (
            select(ItemResult)
            .where(ItemResult.segment_id.in_(limits))
            .order_by(ItemResult.task, ItemResult.step, ItemResult.id)
        )
        return [item for item in self.session.scalars(found) if item.step <= limits[item.segment_id]]

    def newest_events(self, run_id: int, limit: int) -> list[Event]:
        """The last few of what the trainer said beside numbers, the newest first."""
        found = select(Event).where(Event.run_id == run_id).order_by(Event.at.desc(), Event.id.desc()).limit(limit)
        return list(self.session.scalars(found))

    def events(self, run_id: int, cursor: str | None = None, limit: int = 200) -> tuple[list[Event], str | None]:
        """What the trainer said beside numbers, by step, and the cursor of the next page.

        Raises:
            InvalidError: the cursor was not made here.
        """
        query = select(Event).where(Event.run_id == run_id).order_by(Event.step, Event.id).limit(limit + 1)
        if cursor is not None:
            step, last = decode(cursor)
            query = query.where(or_(Event.step > step, and_(Event.step == step, Event.id > last)))
        events = list(self.session.scalars(query))
        places: list[Place] = [(event.step, event.id) for event in events]
        return events[:limit], _next(places, limit)


_FINISHED = select(func.count(Segment.finished_at)).where(Segment.run_id == bindparam("run"))


_OPEN_ALERTS = (
    select(func.count(Alert.id)).where(Alert.run_id == Run.id, Alert.state != "resolved").correlate(Run)
).scalar_subquery()


def _rows() -> Select[Run, str, RunState, VerdictRow, int]:
    return (
        select(Run, Project.slug, RunState, VerdictRow, _OPEN_ALERTS)
        .join(Project, Run.project_id == Project.id)
        .outerjoin(RunState, RunState.run_id == Run.id)
        .outerjoin(VerdictRow, VerdictRow.run_id == Run.id)
    )


def _next(places: Sequence[Place], limit: int) -> str | None:
    return encode(places[limit - 1]) if len(places) > limit else None
