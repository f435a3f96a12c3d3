"""What has just changed, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from service.broker import MISSED, Notice
from service.context import ContextDep

RETRY_MILLISECONDS = 2000
BEAT_SECONDS = 15.0
LARGEST = 2**63 - 1
SHUTDOWN = "shutdown"  # published once by the server as it stops: every stream ends

router = APIRouter(tags=["events"])


@router.get("/events", response_class=EventSourceResponse)
async def events(
    context: ContextDep,
    run: Annotated[UUID | None, Query(description="Only what concerns this run.")] = None,
    project: Annotated[str | None, Query(description="Only what concerns this project.")] = None,
    since: Annotated[
        int | None, Query(ge=0, le=LARGEST, description="Also what came after the event of this `id`.")
    ] = None,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", description="As `since`; browsers send it as they reconnect.")
    ] = None,
) -> AsyncIterator[ServerSentEvent]:
    """A stream of changes: points, settings, verdict, alert, run, delivery, each with its number as `id`.

    Events say what to read again, not the numbers themselves. After a reconnect the newest thousand are told again
    from `Last-Event-ID` (or `since`) on; where that is too long ago, one event `missed` says to read everything again.
    An event `beat` every 15 seconds in which nothing happens shows that the stream is alive.
    """
    number = since
    if last_event_id is not None:  # newer than the address, which stays the same over all reconnections
        number = int(last_event_id) if last_event_id.isascii() and last_event_id.isdigit() else 0
    with context.broker.listening(number) as queue:
        yield ServerSentEvent(comment="listening", retry=RETRY_MILLISECONDS)
        while True:
            try:
                notice = await asyncio.wait_for(queue.get(), BEAT_SECONDS)
            except TimeoutError:
                yield ServerSentEvent(event="beat", data={})
                continue
            if notice.kind == SHUTDOWN:
                return
            if notice.kind == MISSED or concerns(notice, run, project):
                yield ServerSentEvent(id=str(notice.number), event=notice.kind, data=notice.body)


def concerns(notice: Notice, run: UUID | None, project: str | None) -> bool:
    """Whether a listener to this run and this project (None: to all) wants to hear of it."""
    body: dict[str, Any] = notice.body
    return (run is None or body.get("run") == str(run)) and (project is None or body.get("project") == project)
