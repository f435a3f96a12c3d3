"""Alerts, and every thing that happened to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from service.database.models import Alert, AlertChange, Project, Run
from service.runs.cursor import decode, encode

OPEN = ("firing", "acknowledged")


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert with the run and the project (its slug) it belongs to."""

    alert: Alert
    run: Run
    project: str


class AlertRepository:
    """Alerts by run, family and age."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def open_of(self, run_id: int) -> dict[str, Alert]:
        """The open alerts of a run by family, locked until the transaction ends."""
        found = select(Alert).where(Alert.run_id == run_id, Alert.state.in_(OPEN)).with_for_update()
        return {alert.family: alert for alert in self.session.scalars(found)}

    def by_uuid(self, uuid: UUID, *, lock: bool = False) -> AlertRow | None:
        """The alert with this public id; `lock` it to change it."""
        query = _rows().where(Alert.uuid == uuid)
        if lock:
            query = query.with_for_update(of=Alert)
        row = self.session.execute(query).one_or_none()
        return None if row is None else AlertRow(*row)

    def page(
        self,
        *,
        run: UUID | None = None,
        project: str | None = None,
        states: Sequence[str] = (),
        family: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> tuple[list[AlertRow], str | None]:
        """Alerts, the newest first, and the cursor of the next page: None at the end.

        Raises:
            InvalidError: the cursor was not made here.
        """
        query = _rows().order_by(Alert.id.desc()).limit(limit + 1)
        if run is not None:
            query = query.where(Run.uuid == run)
        if project is not None:
            query = query.where(Project.slug == project)
        if states:
            query = query.where(Alert.state.in_(states))
        if family is not None:
            query = query.where(Alert.family == family)
        if cursor is not None:
            query = query.where(Alert.id < decode(cursor)[1])
        rows = [AlertRow(*row) for row in self.session.execute(query)]
        following = encode((0.0, rows[limit - 1].alert.id)) if len(rows) > limit else None
        return rows[:limit], following

    def changes(self, alert_id: int) -> list[AlertChange]:
        """What happened to an alert, in order."""
        found = select(AlertChange).where(AlertChange.alert_id == alert_id).order_by(AlertChange.number)
        return list(self.session.scalars(found))

    def last_change(self, alert_id: int, kinds: Sequence[str]) -> AlertChange | None:
        """The newest change of one of these kinds."""
        found = select(AlertChange).where(AlertChange.alert_id == alert_id, AlertChange.kind.in_(kinds))
        return self.session.scalars(found.order_by(AlertChange.number.desc()).limit(1)).first()

    def add_change(self, alert: Alert, kind: str, at: float, body: Mapping[str, Any]) -> int:
        """Append a change and return its number: 1, 2, … within its alert, which must be locked or new."""
        last = select(func.max(AlertChange.number)).where(AlertChange.alert_id == alert.id)
        number = (self.session.scalar(last) or 0) + 1
        self.session.add(AlertChange(alert_id=alert.id, number=number, kind=kind, at=at, body=dict(body)))
        self.session.flush()
        alert.updated_at = at
        return number


def _rows() -> Select[Alert, Run, str]:
    return (
        select(Alert, Run, Project.slug).join(Run, Alert.run_id == Run.id).join(Project, Run.project_id == Project.id)
    )
