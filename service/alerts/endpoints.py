"""Alerts: what is wrong now, what was, and who has seen it."""

from __future__ import annotations

import time
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from service.alerts.repository import OPEN, AlertRepository, AlertRow
from service.alerts.schemas import Acknowledgement, AlertDetail, AlertPage, alert_detail, alert_summary
from service.channels.repository import ChannelRepository
from service.channels.schemas import delivery_answer
from service.context import ContextDep
from service.database.engine import reading, writing
from service.errors import ConflictError, NotFoundError
from service.judgements.repository import JudgementRepository
from service.recovery.reading import BEGINNINGS, what_now

router = APIRouter(tags=["alerts"])


@router.get("/alerts", operation_id="list_alerts")
def list_alerts(
    context: ContextDep,
    run: UUID | None = None,
    project: Annotated[str | None, Query(max_length=256)] = None,
    state: Annotated[
        Literal["open", "firing", "acknowledged", "resolved"] | None, Query(description="open: not resolved yet.")
    ] = None,
    family: Annotated[str | None, Query(max_length=32)] = None,
    cursor: Annotated[str | None, Query(max_length=256, description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> AlertPage:
    """Alerts, the newest first."""
    states = OPEN if state == "open" else (state,) if state else ()
    with reading(context.engine) as session:
        rows, following = AlertRepository(session).page(
            run=run, project=project, states=states, family=family, cursor=cursor, limit=limit
        )
        items = [alert_summary(row, context.settings.base_url) for row in rows]
        return AlertPage(items=items, next_cursor=following)


@router.get("/alerts/{alert_id}", operation_id="read_alert")
def read_alert(context: ContextDep, alert_id: UUID) -> AlertDetail:
    """One alert: the judgements behind it with evidence and causes, what happened to it, and what was sent."""
    with reading(context.engine) as session:
        return _detail(session, _found(AlertRepository(session), alert_id), context.settings.base_url)


@router.post("/alerts/{alert_id}/acknowledge", operation_id="acknowledge_alert")
def acknowledge_alert(context: ContextDep, alert_id: UUID, body: Acknowledgement) -> AlertDetail:
    """Say that somebody is at it. The same words again change nothing; a rule that joins later is still sent."""
    with writing(context.engine) as session:
        repository = AlertRepository(session)
        row = _found(repository, alert_id, lock=True)
        if row.alert.state == "resolved":
            raise ConflictError(f"Alert {alert_id} is resolved; there is nothing left to acknowledge.")
        said = {"by": body.by, "note": body.note}
        last = repository.last_change(row.alert.id, ("acknowledged",))
        changed = last is None or last.body != said
        if changed:
            row.alert.state = "acknowledged"
            repository.add_change(row.alert, "acknowledged", time.time(), said)
        answer = _detail(session, row, context.settings.base_url)
    if changed:
        notice = {"alert": str(alert_id), "run": str(answer.run), "project": answer.project, "change": "acknowledged"}
        context.broker.publish("alert", {**notice, "state": answer.state, "family": answer.family})
    return answer


def _found(repository: AlertRepository, uuid: UUID, *, lock: bool = False) -> AlertRow:
    row = repository.by_uuid(uuid, lock=lock)
    if row is None:
        raise NotFoundError(f"There is no alert {uuid}. GET /api/v1/alerts lists the alerts.")
    return row


def _detail(session: Session, row: AlertRow, base_url: str) -> AlertDetail:
    channels = ChannelRepository(session)
    rows = channels.deliveries_of_alert(row.alert.id)
    attempts = channels.attempts([found.delivery.id for found in rows])
    newest = {found.rule: found.body for found in JudgementRepository(session).of_run(row.run.id)}
    deliveries = [delivery_answer(found, attempts[found.delivery.id]) for found in rows]
    recovery = None
    if row.alert.family in BEGINNINGS and row.alert.state != "resolved":
        recovery = what_now(session, row.run, [newest[rule] for rule in row.alert.rules if rule in newest])
    return alert_detail(row, base_url, newest, AlertRepository(session).changes(row.alert.id), deliveries, recovery)
