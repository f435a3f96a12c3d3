"""What happens to alerts, as server-sent events that miss nothing: a client that was away names the last one it saw.

Events are read from the database, so that those of every process on it arrive: at once where this process made them,
within a second where another one did.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent

from service.alerts.repository import AlertRepository, AlertRow
from service.alerts.schemas import Severity, alert_summary, change_answer
from service.alerts.severity import at_least
from service.broker import Notice
from service.context import Context, ContextDep
from service.database.engine import reading
from service.database.models import AlertChange
from service.events.endpoints import RETRY_MILLISECONDS, SHUTDOWN

LOOK_EVERY = 1.0  # seconds between looks for what other processes have written
PAGE = 100

router = APIRouter(tags=["alerts"])


@router.get("/alerts/events", operation_id="stream_alerts", response_class=EventSourceResponse)
async def stream_alerts(
    context: ContextDep,
    run: UUID | None = None,
    project: Annotated[str | None, Query(max_length=256)] = None,
    rule: Annotated[str | None, Query(max_length=64, description="Only alerts that this rule joined.")] = None,
    severity: Annotated[Severity | None, Query(description="Only alerts at least this severe.")] = None,
    after: Annotated[int | None, Query(ge=0, description="Begin after this event; 0: with the first.")] = None,
    last_event_id: Annotated[int | None, Header(ge=0, description="What a client sends that was away.")] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Every change of an alert, in order: `id` is its place, `event` its kind, data {alert, change}.

    Begins after `Last-Event-ID`, else after `after`, else now. A comment is sent every 15 seconds of silence.
    """
    severities = at_least(severity)

    def wanted(row: AlertRow) -> bool:
        return (
            (run is None or row.run.uuid == run)
            and (project is None or row.project == project)
            and (rule is None or rule in row.alert.rules)
            and (not severities or row.alert.severity in severities)
        )

    with context.broker.listening() as queue:
        place = after if last_event_id is None else last_event_id
        if place is None:
            place = await run_in_threadpool(_newest, context)
        yield ServerSentEvent(comment="listening", retry=RETRY_MILLISECONDS)
        while True:
            found = await run_in_threadpool(_after, context, place)
            for change, row in found:
                place = change.event
                if wanted(row):
                    yield _event(change, row, context.settings.base_url)
            if len(found) < PAGE and await _ends_while_waiting(queue):
                return


def _newest(context: Context) -> int:
    with reading(context.engine) as session:
        return AlertRepository(session).newest_event()


def _after(context: Context, place: int) -> list[tuple[AlertChange, AlertRow]]:
    with reading(context.engine) as session:
        return AlertRepository(session).events_after(place, PAGE)


def _event(change: AlertChange, row: AlertRow, base_url: str) -> ServerSentEvent:
    body = {"alert": alert_summary(row, base_url), "change": change_answer(change)}
    data = {name: part.model_dump(mode="json") for name, part in body.items()}
    return ServerSentEvent(id=str(change.event), event=change.kind, data=data)


async def _ends_while_waiting(queue: asyncio.Queue[Notice]) -> bool:
    """Wait until an alert has changed here, or for the next look; whether the server stops."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOOK_EVERY):
            while True:
                notice = await queue.get()
                if notice.kind in ("alert", SHUTDOWN):
                    return notice.kind == SHUTDOWN
    return False
