"""Alerts, and every thing that happened to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Select, Text, and_, cast, exists, func, or_, select
from sqlalchemy.orm import Session

from service.database.models import Alert, AlertChange, Channel, Delivery, Project, Run
from service.runs.cursor import decode, encode

OPEN = ("firing", "acknowledged")
NUMBERING = 0x70616365  # the advisory lock of PostgreSQL under which changes are numbered


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

    def current_of(self, run_id: int) -> tuple[dict[str, Alert], list[Alert]]:
        """The open alerts of a run by family, and those that a person resolved while their rules still hold; both are
        locked until the transaction ends."""
        current = or_(Alert.state.in_(OPEN), Alert.held.is_not(None))
        found = select(Alert).where(Alert.run_id == run_id, current).order_by(Alert.id).with_for_update()
        alerts = list(self.session.scalars(found))
        return {a.family: a for a in alerts if a.state in OPEN}, [a for a in alerts if a.held is not None]

    def with_current(self, run_ids: Sequence[int]) -> set[int]:
        """Those of these runs for which `current_of` finds any."""
        current = or_(Alert.state.in_(OPEN), Alert.held.is_not(None))
        return set(self.session.scalars(select(Alert.run_id).where(Alert.run_id.in_(run_ids), current)))

    def open_of(self, run_id: int) -> list[Alert]:
        """The open alerts of a run, the oldest first."""
        found = select(Alert).where(Alert.run_id == run_id, Alert.state.in_(OPEN)).order_by(Alert.id)
        return list(self.session.scalars(found))

    def by_uuid(self, uuid: UUID, *, lock: bool = False) -> AlertRow | None:
        """The alert with this public id; `lock` it to change it."""
        query = _rows().where(Alert.uuid == uuid)
        if lock:
            query = query.with_for_update(of=Alert)
        row = self.session.execute(query).one_or_none()
        return None if row is None else AlertRow(*row)

    def locked(self, alert_id: int) -> AlertRow | None:
        """The alert with this key, locked; None where another process holds it."""
        query = _rows().where(Alert.id == alert_id).with_for_update(of=Alert, skip_locked=True)
        row = self.session.execute(query).one_or_none()
        return None if row is None else AlertRow(*row)

    def mutes_over(self, now: float, limit: int) -> list[int]:
        """Open alerts whose mute has ended by now (unix seconds)."""
        found = select(Alert.id).where(Alert.state.in_(OPEN), Alert.muted_until <= now)
        return list(self.session.scalars(found.limit(limit)))

    def unheard(self, now: float, limit: int, pair: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """Pairs of a firing alert and a channel whose last message about it is older than the channel's interval; of
        one `pair` whether it is one."""
        of_pair = and_(Delivery.alert_id == Alert.id, Delivery.channel_id == Channel.id)
        last = select(func.max(func.coalesce(Delivery.delivered_at, Delivery.created_at))).where(of_pair)
        found = (
            select(Alert.id, Channel.id)
            .join(Channel, and_(Channel.enabled, Channel.repeat_seconds.is_not(None)))
            .where(
                Alert.state == "firing",
                Alert.muted_until.is_(None),
                exists().where(of_pair),
                ~exists().where(of_pair, Delivery.state == "pending"),
                last.scalar_subquery() + Channel.repeat_seconds <= now,
            )
            .order_by(Alert.id, Channel.id)
            .limit(limit)
        )
        if pair is not None:
            found = found.where(Alert.id == pair[0], Channel.id == pair[1])
        return [(alert, channel) for alert, channel in self.session.execute(found)]

    def beginning_with(self, text: str) -> list[UUID]:
        """Ids of alerts that begin so (hex digits and dashes), at most two."""
        digits = text.replace("-", "").ljust(32, "0")
        if len(digits) != 32 or any(digit not in "0123456789abcdef" for digit in digits):
            return []
        last = text.replace("-", "").ljust(32, "f")
        found = select(Alert.uuid).where(Alert.uuid.between(UUID(digits), UUID(last))).limit(2)
        return list(self.session.scalars(found))

    def page(
        self,
        *,
        run: UUID | None = None,
        project: str | None = None,
        states: Sequence[str] = (),
        family: str | None = None,
        severities: Sequence[str] = (),
        rule: str | None = None,
        since: float | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> tuple[list[AlertRow], str | None]:
        """Alerts, the newest first, and the cursor of the next page: None at the end.

        `rule`: it joined the alert; `since` (unix seconds): something has happened to it since then.

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
        if severities:
            query = query.where(Alert.severity.in_(severities))
        if since is not None:
            query = query.where(Alert.updated_at >= since)
        if rule is not None:
            query = query.where(cast(Alert.rules, Text).contains(f'"{rule}"', autoescape=True))
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

    def newest_event(self) -> int:
        """The place of the newest change among all changes, 0 before the first."""
        return self.session.scalar(select(func.max(AlertChange.event))) or 0

    def events_after(self, event: int, limit: int) -> list[tuple[AlertChange, AlertRow]]:
        """Changes of all alerts after this place, in order, each with its alert."""
        query = (
            select(AlertChange, Alert, Run, Project.slug)
            .join(Alert, AlertChange.alert_id == Alert.id)
            .join(Run, Alert.run_id == Run.id)
            .join(Project, Run.project_id == Project.id)
            .where(AlertChange.event > event)
            .order_by(AlertChange.event)
            .limit(limit)
        )
        return [(change, AlertRow(alert, run, slug)) for change, alert, run, slug in self.session.execute(query)]

    def add_change(self, alert: Alert, kind: str, at: float, body: Mapping[str, Any]) -> int:
        """Append a change and return its number: 1, 2, … within its alert, which must be locked or new.

        Changes of all alerts are numbered too, for the stream. One transaction at a time does that until it commits, so
        that a number that can be seen has none below it that will only be seen later.
        """
        if self.session.get_bind().dialect.name == "postgresql":
            self.session.execute(select(func.pg_advisory_xact_lock(NUMBERING)))
        last = select(func.max(AlertChange.number)).where(AlertChange.alert_id == alert.id)
        number = (self.session.scalar(last) or 0) + 1
        event = self.newest_event() + 1
        values = {"alert_id": alert.id, "number": number, "kind": kind, "at": at, "event": event}
        self.session.add(AlertChange(**values, body=dict(body)))
        self.session.flush()
        alert.updated_at = at
        return number


def _rows() -> Select[Alert, Run, str]:
    return (
        select(Alert, Run, Project.slug).join(Run, Alert.run_id == Run.id).join(Project, Run.project_id == Project.id)
    )
