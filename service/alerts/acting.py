"""What people and bots do with alerts over HTTP. Every action keeps who, what they said, and from where."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request

from service.alerts.hands import Actor, Hands, mute_end
from service.alerts.reading import alert_of, detail
from service.alerts.schemas import MAX_MUTE, Acknowledgement, AlertDetail, Assignment, Comment, Mute
from service.context import Context, ContextDep
from service.database.engine import writing
from service.errors import field_error

router = APIRouter(tags=["alerts"])


@dataclass(frozen=True, slots=True)
class Source:
    """Where a request comes from: the client's name and its address."""

    via: str = ""
    address: str = ""


async def source_of(request: Request) -> Source:  # async: else every request waits for a thread
    """What a request says of its client."""
    return Source(request.headers.get("user-agent", "")[:64], request.client.host if request.client else "")


SourceDep = Annotated[Source, Depends(source_of)]


@router.post("/alerts/{alert_id}/acknowledge", operation_id="acknowledge_alert")
def acknowledge_alert(context: ContextDep, source: SourceDep, alert_id: UUID, body: Acknowledgement) -> AlertDetail:
    """Say that somebody is at it. The same words again change nothing; a rule that joins later is still sent."""
    return _act(context, source, alert_id, body, Hands.acknowledge)


@router.post("/alerts/{alert_id}/mute", operation_id="mute_alert")
def mute_alert(context: ContextDep, source: SourceDep, alert_id: UUID, body: Mute) -> AlertDetail:
    """Hold back its messages for a time; evidence is kept. If it still fires at the end, one message says so."""
    try:
        end = mute_end(time.time(), body.until.timestamp() if body.until else None, body.minutes, MAX_MUTE)
    except ValueError as error:
        raise field_error("body.until", str(error)) from error
    return _act(context, source, alert_id, body, lambda hands: hands.mute(end))


@router.post("/alerts/{alert_id}/unmute", operation_id="unmute_alert")
def unmute_alert(context: ContextDep, source: SourceDep, alert_id: UUID, body: Acknowledgement) -> AlertDetail:
    """End a mute before its time."""
    return _act(context, source, alert_id, body, Hands.unmute)


@router.post("/alerts/{alert_id}/resolve", operation_id="resolve_alert")
def resolve_alert(context: ContextDep, source: SourceDep, alert_id: UUID, body: Acknowledgement) -> AlertDetail:
    """End it by hand. What still says yes stays closed until it has cleared; its next yes is another alert."""
    return _act(context, source, alert_id, body, Hands.resolve)


@router.post("/alerts/{alert_id}/assign", operation_id="assign_alert")
def assign_alert(context: ContextDep, source: SourceDep, alert_id: UUID, body: Assignment) -> AlertDetail:
    """Say whose it is."""
    return _act(context, source, alert_id, body, lambda hands: hands.assign(body.assignee))


@router.post("/alerts/{alert_id}/comment", operation_id="comment_alert")
def comment_alert(context: ContextDep, source: SourceDep, alert_id: UUID, body: Comment) -> AlertDetail:
    """Write something beside it."""
    return _act(context, source, alert_id, body, Hands.comment)


def _act(
    context: Context, source: Source, alert_id: UUID, body: Acknowledgement, action: Callable[[Hands], bool]
) -> AlertDetail:
    actor = Actor(body.by, body.note, body.via or source.via, source.address)
    base_url = context.settings.base_url
    with writing(context.engine) as session:
        row = alert_of(session, alert_id, lock=True)
        changed = action(Hands(session, row, actor, now=time.time(), base_url=base_url))
        answer = detail(session, row, base_url)
    if changed:
        notice = {"alert": str(alert_id), "run": str(answer.run), "project": answer.project}
        last = answer.changes[-1]
        change = {"change": last.kind, "number": last.number, "state": answer.state, "family": answer.family}
        context.broker.publish("alert", notice | change)
    return answer
