"""What has just changed, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from service.broker import Notice
from service.context import ContextDep

RETRY_MILLISECONDS = 2000
SHUTDOWN = "shutdown"  # published once by the server as it stops: every stream ends

router = APIRouter(tags=["events"])


@router.get("/events", response_class=EventSourceResponse)
async def events(
    context: ContextDep,
    run: Annotated[UUID | None, Query(description="Only what concerns this run.")] = None,
    project: Annotated[str | None, Query(description="Only what concerns this project.")] = None,
) -> AsyncIterator[ServerSentEvent]:
    """A stream of changes from now on: points, settings, verdict, alert, run, delivery, each with its number as `id`.

    Events say what to read again, not the numbers themselves; nothing is replayed after a reconnect, so a client that
    was away reads again what it shows. A comment is sent every 15 seconds where nothing happens.
    """
    with context.broker.listening() as queue:
        yield ServerSentEvent(comment="listening", retry=RETRY_MILLISECONDS)
        while True:
            notice = await queue.get()
            if notice.kind == SHUTDOWN:
                return
            if concerns(notice, run, project):
                yield ServerSentEvent(id=str(notice.number), event=notice.kind, data=notice.body)


def concerns(notice: Notice, run: UUID | None, project: str | None) -> bool:
    """Whether a listener to this run and this project (None: to all) wants to hear of it."""
    body: dict[str, Any] = notice.body
    return (run is None or body.get("run") == str(run)) and (project is None or body.get("project") == project)
