"""What the database says of recent changes, for those who listen: how far each run's data, verdict and messages are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.database.models import (
    Alert,
    AlertChange,
    Delivery,
    JudgingChange,
    Project,
    Run,
    RunNote,
    RunState,
    VerdictRow,
)

AT_MOST = 1000  # messages on their way that are watched, and rows of one kind that are read at one look
OVERLAP = 100  # keys of changes of settings that are read again: keys may become visible out of order


@dataclass(frozen=True, slots=True)
class RunSubject:
    """A run as notices name it."""

    uuid: UUID
    project: str


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """One change of an alert. `event`: its place among the changes of all alerts; `number`: within the alert."""

    event: int
    number: int
    kind: str
    alert: UUID
    family: str
    state: str
    run_id: int


@dataclass(frozen=True, slots=True)
class Sending:
    """A message: its id, its alert's and run's, its state, and how often it was tried."""

    delivery: UUID
    alert: UUID
    run_id: int
    state: str
    attempts: int


class EventRepository:
    """Reads by recency and by key; never a payload."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def data_since(self, time: float) -> dict[int, tuple[int, int | None]]:
        """Runs to which data came since this time (unix seconds): version of the data, newest step."""
        found = select(RunState.run_id, RunState.data_version, RunState.last_step).where(RunState.last_data_at >= time)
        return {run_id: (version, step) for run_id, version, step in self.session.execute(found)}

    def verdicts_since(self, time: float) -> dict[int, tuple[float, str]]:
        """Runs that were judged since this time: when, and the verdict."""
        found = select(VerdictRow.run_id, VerdictRow.decided_at, VerdictRow.state).where(VerdictRow.decided_at >= time)
        return {run_id: (at, state) for run_id, at, state in self.session.execute(found)}

    def newest_alert_event(self) -> int:
        """The place of the newest change of any alert, 0 before the first."""
        return self.session.scalar(select(func.max(AlertChange.event))) or 0

    def alert_events(self, after: int) -> list[AlertEvent]:
        """Changes of alerts after this place, in order."""
        found = (
            select(
                AlertChange.event,
                AlertChange.number,
                AlertChange.kind,
                Alert.uuid,
                Alert.family,
                Alert.state,
                Alert.run_id,
            )
            .join(Alert, Alert.id == AlertChange.alert_id)
            .where(AlertChange.event > after)
            .order_by(AlertChange.event)
            .limit(AT_MOST)
        )
        return [AlertEvent(*row) for row in self.session.execute(found)]

    def pending(self) -> dict[int, int]:
        """Messages on their way, the next to be tried first: key -> attempts. In the order of an index: all that were
        ever sent stand in the same table."""
        found = select(Delivery.id, Delivery.attempts).where(Delivery.state == "pending")
        rows = self.session.execute(found.order_by(Delivery.next_attempt_at).limit(AT_MOST))
        return {row.id: row.attempts for row in rows}

    def sendings(self, keys: Collection[int]) -> list[Sending]:
        """These messages, as far as they are still kept."""
        found = (
            select(Delivery.uuid, Alert.uuid, Alert.run_id, Delivery.state, Delivery.attempts)
            .join(Alert, Alert.id == Delivery.alert_id)
            .where(Delivery.id.in_(keys))
            .order_by(Delivery.id)
        )
        return [Sending(*row) for row in self.session.execute(found)]

    def settings_after(self, key: int) -> list[tuple[int, str, UUID | None]]:
        """Changes of how a project or a run is judged after this key: key, project, run."""
        found = (
            select(JudgingChange.id, Project.slug, Run.uuid)
            .join(Project, Project.id == JudgingChange.project_id)
            .outerjoin(Run, Run.id == JudgingChange.run_id)
            .where(JudgingChange.id > key)
            .order_by(JudgingChange.id)
        )
        return [(key, project, run) for key, project, run in self.session.execute(found)]

    def newest_setting(self) -> int:
        """Key of the newest change of settings, 0 before the first."""
        return self.session.scalar(select(func.max(JudgingChange.id))) or 0

    def hand_written(self) -> tuple[object, ...]:
        """Something that is another one when a note or what is archived has changed."""
        notes = self.session.execute(select(func.count(), func.max(RunNote.id))).one()
        runs = self.session.execute(select(func.count(Run.archived_at), func.sum(Run.archived_at))).one()
        return (*notes, *runs)

    def hand_written_of_runs(self) -> dict[int, tuple[object, ...]]:
        """The same by run, for runs that have any of it."""
        notes = select(RunNote.run_id, func.count(), func.max(RunNote.id)).group_by(RunNote.run_id)
        found: dict[int, tuple[object, ...]] = {row[0]: tuple(row[1:]) for row in self.session.execute(notes)}
        archived = select(Run.id, Run.archived_at).where(Run.archived_at.is_not(None))
        for run_id, at in self.session.execute(archived):
            found[run_id] = (*found.get(run_id, ()), at)
        return found

    def subjects(self, run_ids: Collection[int]) -> dict[int, RunSubject]:
        """How notices name these runs."""
        found = select(Run.id, Run.uuid, Project.slug).join(Project, Project.id == Run.project_id)
        rows = self.session.execute(found.where(Run.id.in_(run_ids))) if run_ids else ()
        return {run_id: RunSubject(uuid, slug) for run_id, uuid, slug in rows}
