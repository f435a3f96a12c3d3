"""Alerts: what is wrong now, what was, and who has seen it."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from service.alerts.acting import router as acting
from service.alerts.events import router as events
from service.alerts.reading import alert_of, detail
from service.alerts.repository import OPEN, AlertRepository
from service.alerts.schemas import AlertDetail, AlertPage, Severity, alert_summary
from service.alerts.severity import at_least
from service.context import ContextDep
from service.database.engine import reading

router = APIRouter(tags=["alerts"])
router.include_router(events)  # before what takes any word for an alert's id


@router.get("/alerts", operation_id="list_alerts")
def list_alerts(
    context: ContextDep,
    run: UUID | None = None,
    project: Annotated[str | None, Query(max_length=256)] = None,
    state: Annotated[
        Literal["open", "firing", "acknowledged", "resolved"] | None, Query(description="open: not resolved yet.")
    ] = None,
    family: Annotated[str | None, Query(max_length=32)] = None,
    rule: Annotated[str | None, Query(max_length=64, description="Only alerts that this rule joined.")] = None,
    severity: Annotated[Severity | None, Query(description="Only alerts at least this severe.")] = None,
    since: Annotated[
        AwareDatetime | None, Query(description="Only alerts to which something has happened since this time.")
    ] = None,
    cursor: Annotated[str | None, Query(max_length=256, description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> AlertPage:
    """Alerts, the newest first."""
    states = OPEN if state == "open" else (state,) if state else ()
    with reading(context.engine) as session:
        rows, following = AlertRepository(session).page(
            run=run,
            project=project,
            states=states,
            family=family,
            severities=at_least(severity),
            rule=rule,
            since=None if since is None else since.timestamp(),
            cursor=cursor,
            limit=limit,
        )
        items = [alert_summary(row, context.settings.base_url) for row in rows]
        return AlertPage(items=items, next_cursor=following)


@router.get("/alerts/{alert_id}", operation_id="read_alert")
def read_alert(context: ContextDep, alert_id: UUID) -> AlertDetail:
    """One alert: the judgements behind it with evidence and causes, what happened to it, and what was sent."""
    with reading(context.engine) as session:
        return detail(session, alert_of(session, alert_id), context.settings.base_url)


router.include_router(acting)
