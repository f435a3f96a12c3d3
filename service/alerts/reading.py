"""One alert with all that belongs to it, as the API answers it."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy.orm import Session

from service.alerts.repository import AlertRepository, AlertRow
from service.alerts.schemas import AlertDetail, alert_detail
from service.channels.repository import ChannelRepository
from service.channels.schemas import delivery_answer
from service.errors import NotFoundError
from service.judgements.repository import JudgementRepository
from service.recovery.reading import BEGINNINGS, what_now


def alert_of(session: Session, uuid: UUID, *, lock: bool = False) -> AlertRow:
    """The alert with this public id; `lock` it to change it.

    Raises:
        NotFoundError: no alert has it.
    """
    row = AlertRepository(session).by_uuid(uuid, lock=lock)
    if row is None:
        raise NotFoundError(f"There is no alert {uuid}. GET /api/v1/alerts lists the alerts.")
    return row


def detail(session: Session, row: AlertRow, base_url: str) -> AlertDetail:
    """An alert with judgements, changes, deliveries, and where to restart."""
    channels = ChannelRepository(session)
    rows = channels.deliveries_of_alert(row.alert.id)
    attempts = channels.attempts([found.delivery.id for found in rows])
    newest = {found.rule: found.body for found in JudgementRepository(session).of_run(row.run.id)}
    deliveries = [delivery_answer(found, attempts[found.delivery.id]) for found in rows]
    recovery = None
    if row.alert.family in BEGINNINGS and row.alert.state != "resolved":
        recovery = what_now(session, row.run, [newest[rule] for rule in row.alert.rules if rule in newest])
    return alert_detail(row, base_url, newest, AlertRepository(session).changes(row.alert.id), deliveries, recovery)
