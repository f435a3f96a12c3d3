"""Channels: where messages go, a test of each, and what was sent when."""

from __future__ import annotations

import time
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Query
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.channels import outbox
from service.channels.attempt import attempt_at
from service.channels.kinds import KINDS
from service.channels.outbox import Claim
from service.channels.repository import ChannelRepository
from service.channels.safety import UnsafeAddressError, check_url
from service.channels.schemas import (
    ChannelAnswer,
    ChannelList,
    CreatedChannel,
    DeliveryAnswer,
    DeliveryPage,
    NewChannel,
    TestAnswer,
    channel_answer,
    delivery_answer,
)
from service.channels.sending import Sender
from service.context import ContextDep
from service.database.engine import reading, writing
from service.database.models import Channel
from service.errors import ConflictError, NotFoundError, field_error
from service.runs.fields import rfc3339

router = APIRouter(tags=["channels"])


@router.get("/channels", operation_id="list_channels")
def list_channels(context: ContextDep) -> ChannelList:
    """Every channel."""
    with reading(context.engine) as session:
        found = ChannelRepository(session).all()
        return ChannelList(items=[channel_answer(channel, project) for channel, project in found])


@router.post("/channels", operation_id="create_channel", status_code=201)
def create_channel(context: ContextDep, body: NewChannel) -> CreatedChannel:
    """Make a channel. Its secret is in this answer and never shown again."""
    try:
        check_url(body.url, allow_private=context.settings.allow_private_channels)
    except UnsafeAddressError as error:
        raise field_error("body.url", str(error)) from error
    try:
        secret = KINDS[body.kind].secret(body.secret)
    except ValueError as error:
        raise field_error("body.secret", str(error)) from error
    with writing(context.engine) as session:
        repository = ChannelRepository(session)
        project = repository.project(body.project) if body.project is not None else None
        if body.project is not None and project is None:
            raise field_error("body.project", f"there is no project {body.project}; GET /api/v1/projects lists them")
        channel = Channel(
            uuid=uuid4(),
            name=body.name,
            kind=body.kind,
            url=body.url,
            secret=secret,
            project_id=project.id if project else None,
            enabled=True,
            created_at=time.time(),
        )
        session.add(channel)
        try:
            session.flush()
        except IntegrityError as error:
            taken = f"There is a channel named {body.name} already. Choose another name, or delete it."
            raise ConflictError(taken) from error
        return CreatedChannel(**dict(channel_answer(channel, body.project)), secret=secret)


@router.get("/channels/{channel_id}", operation_id="read_channel")
def read_channel(context: ContextDep, channel_id: UUID) -> ChannelAnswer:
    """One channel."""
    with reading(context.engine) as session:
        return channel_answer(*_channel(session, channel_id))


@router.delete("/channels/{channel_id}", operation_id="delete_channel", status_code=204)
def delete_channel(context: ContextDep, channel_id: UUID) -> None:
    """Remove a channel, the messages that wait for it, and the record of what it was sent."""
    with writing(context.engine) as session:
        ChannelRepository(session).delete(_channel(session, channel_id)[0])


@router.post("/channels/{channel_id}/test", operation_id="test_channel")
def test_channel(context: ContextDep, channel_id: UUID) -> TestAnswer:
    """Send a test message now, once. If it arrives, a channel that a 410 had disabled is enabled again."""
    with reading(context.engine) as session:
        channel, _ = _channel(session, channel_id)
    now = time.time()
    message = {
        "type": "channel.test",
        "title": f"Pacenote test message to {channel.name}",
        "at": rfc3339(now),
        "summary": ["Alerts about runs will be sent here."],
        "facts": [{"label": "Service", "text": context.settings.base_url}],
    }
    claim = Claim(0, str(uuid4()), channel.id, channel.kind, channel.url, channel.secret, message, now)
    attempt = attempt_at(Sender(allow_private=context.settings.allow_private_channels), claim)
    if attempt.delivered and not channel.enabled:
        with writing(context.engine) as session:
            _channel(session, channel_id)[0].enabled = True
    return TestAnswer(
        delivered=attempt.delivered, seconds=attempt.seconds, status=attempt.status, error=attempt.failure
    )


@router.get("/channels/{channel_id}/deliveries", operation_id="list_channel_deliveries")
def list_channel_deliveries(
    context: ContextDep,
    channel_id: UUID,
    cursor: Annotated[str | None, Query(max_length=256, description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> DeliveryPage:
    """What was sent to a channel or waits for it, with every attempt, the newest first."""
    with reading(context.engine) as session:
        repository = ChannelRepository(session)
        rows, following = repository.deliveries(_channel(session, channel_id)[0].id, cursor, limit)
        attempts = repository.attempts([row.delivery.id for row in rows])
        items = [delivery_answer(row, attempts[row.delivery.id]) for row in rows]
        return DeliveryPage(items=items, next_cursor=following)


@router.post("/deliveries/{delivery_id}/replay", operation_id="replay_delivery", status_code=202)
def replay_delivery(context: ContextDep, delivery_id: UUID) -> DeliveryAnswer:
    """Send a message once more, with the same id."""
    with writing(context.engine) as session:
        repository = ChannelRepository(session)
        row = repository.delivery(delivery_id)
        if row is None:
            raise NotFoundError(f"There is no delivery {delivery_id}.")
        if not row.channel.enabled:
            raise ConflictError(
                f"Channel {row.channel.name} is disabled because its receiver answered 410. "
                "A test message that arrives enables it again."
            )
        outbox.replay(row.delivery, time.time())
        answer = delivery_answer(row, repository.attempts([row.delivery.id])[row.delivery.id])
        run = row.delivery.payload["run"]
        notice = {"alert": str(row.alert.uuid), "run": run["id"], "project": run["project"], "change": "replayed"}
    context.broker.publish("alert", notice)
    return answer


def _channel(session: Session, uuid: UUID) -> tuple[Channel, str | None]:
    found = ChannelRepository(session).by_uuid(uuid)
    if found is None:
        raise NotFoundError(f"There is no channel {uuid}. GET /api/v1/channels lists the channels.")
    return found
