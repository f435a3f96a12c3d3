"""Channels: where messages go, a test of each, and what was sent when."""

from __future__ import annotations

import time
from typing import Annotated, Literal
from uuid import UUID, uuid4

from fastapi import APIRouter, Query
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.channels import outbox
from service.channels.attempt import attempt_at
from service.channels.kind import ChannelKind
from service.channels.kinds import KINDS
from service.channels.outbox import Claim
from service.channels.repository import ChannelRepository, ChannelRow
from service.channels.safety import UnsafeAddressError
from service.channels.schemas import (
    ChannelAnswer,
    ChannelChange,
    ChannelList,
    CreatedChannel,
    DeliveryAnswer,
    DeliveryPage,
    NewChannel,
    Replay,
    ReplayAnswer,
    SecretChange,
    TestAnswer,
    channel_answer,
    delivery_answer,
)
from service.channels.sending import Sender
from service.channels.vault import Vault, VaultError, vault_of
from service.context import Context, ContextDep
from service.database.engine import reading, writing
from service.database.models import Channel
from service.detect.engine import FAMILY_OF_RULE
from service.errors import ConflictError, NotFoundError, field_error
from service.runs.fields import rfc3339

router = APIRouter(tags=["channels"])


@router.get("/channels", operation_id="list_channels")
def list_channels(context: ContextDep) -> ChannelList:
    """Every channel."""
    with reading(context.engine) as session:
        found = ChannelRepository(session).all()
        return ChannelList(items=[channel_answer(row, context.settings) for row in found])


@router.post("/channels", operation_id="create_channel", status_code=201)
def create_channel(context: ContextDep, body: NewChannel) -> CreatedChannel:
    """Make a channel. Its secret is in this answer and never shown again."""
    kind = KINDS[body.kind]
    try:
        kind.check(body.url, allow_private=context.settings.allow_private_channels)
    except UnsafeAddressError as error:
        raise field_error("body.url", str(error)) from error
    secret = _secret(kind, body.secret)
    vault = _vault(context)
    with writing(context.engine) as session:
        channel = Channel(
            uuid=uuid4(),
            name=body.name,
            kind=kind.name,
            url=vault.seal(body.url),
            secret=None if secret is None else vault.seal(secret),
            min_severity=body.min_severity,
            group_by=body.group_by.value,
            group_wait=body.group_wait_seconds,
            repeat_seconds=None if body.repeat_hours is None else 3600.0 * body.repeat_hours,
            enabled=True,
            failures=0,
            created_at=time.time(),
        )
        _limit(session, channel, body)
        session.add(channel)
        _flush_named(session, body.name)
        answer = channel_answer(_channel(session, channel.uuid), context.settings)
        return CreatedChannel(**dict(answer), secret=secret)


@router.get("/channels/{channel_id}", operation_id="read_channel")
def read_channel(context: ContextDep, channel_id: UUID) -> ChannelAnswer:
    """One channel."""
    with reading(context.engine) as session:
        return channel_answer(_channel(session, channel_id), context.settings)


@router.patch("/channels/{channel_id}", operation_id="change_channel")
def change_channel(context: ContextDep, channel_id: UUID, body: ChannelChange) -> ChannelAnswer:
    """Rename a channel, switch it on or off, or change which alerts it gets. Kind and address stay: add another one."""
    given = body.model_fields_set
    with writing(context.engine) as session:
        channel = _channel(session, channel_id).channel
        if "name" in given:
            channel.name = body.name
        if "enabled" in given:
            channel.enabled = body.enabled
            if body.enabled:
                channel.failures, channel.paused_until = 0, None
        if "min_severity" in given:
            channel.min_severity = body.min_severity
        if "group_by" in given:
            channel.group_by = body.group_by.value
        if "group_wait_seconds" in given:
            channel.group_wait = body.group_wait_seconds
        if "repeat_hours" in given:
            channel.repeat_seconds = None if body.repeat_hours is None else 3600.0 * body.repeat_hours
        _limit(session, channel, body)
        _flush_named(session, channel.name)
        return channel_answer(_channel(session, channel_id), context.settings)


@router.post("/channels/{channel_id}/secret", operation_id="rotate_channel_secret")
def rotate_channel_secret(context: ContextDep, channel_id: UUID, body: SecretChange) -> CreatedChannel:
    """Give a channel a new secret, shown in this answer alone. Both sign until the overlap ends."""
    vault = _vault(context)
    with writing(context.engine) as session:
        channel = _channel(session, channel_id).channel
        kind = KINDS[channel.kind]
        secret = _secret(kind, body.secret)
        if secret is None:
            raise ConflictError(f"Channels of kind {channel.kind} have no secret: their address is the secret.")
        channel.previous_secret = channel.secret
        channel.previous_until = time.time() + 3600.0 * body.overlap_hours
        channel.secret = vault.seal(secret)
        session.flush()
        answer = channel_answer(_channel(session, channel_id), context.settings)
        return CreatedChannel(**dict(answer), secret=secret)


@router.delete("/channels/{channel_id}", operation_id="delete_channel", status_code=204)
def delete_channel(context: ContextDep, channel_id: UUID) -> None:
    """Remove a channel, the messages that wait for it, and the record of what it was sent."""
    with writing(context.engine) as session:
        ChannelRepository(session).delete(_channel(session, channel_id).channel)


@router.post("/channels/{channel_id}/test", operation_id="test_channel")
def test_channel(context: ContextDep, channel_id: UUID) -> TestAnswer:
    """Send a test message now, once. If it arrives, a channel that a 410 had disabled is enabled again."""
    with reading(context.engine) as session:
        channel = _channel(session, channel_id).channel
    now = time.time()
    message = {
        "type": "channel.test",
        "title": f"Pacenote test message to {channel.name}",
        "at": rfc3339(now),
        "summary": ["Alerts about runs will be sent here."],
        "facts": [{"label": "Service", "text": context.settings.base_url}],
    }
    previous = channel.previous_secret if (channel.previous_until or 0.0) > now else None
    claim = Claim(0, str(uuid4()), channel.id, channel.kind, channel.url, channel.secret, message, now, previous)
    sender = Sender(allow_private=context.settings.allow_private_channels)
    attempt = attempt_at(sender, _vault(context), claim)
    if attempt.delivered and (not channel.enabled or channel.failures):
        with writing(context.engine) as session:
            known = _channel(session, channel_id).channel
            known.enabled, known.failures, known.paused_until = True, 0, None
    return TestAnswer(
        delivered=attempt.delivered, seconds=attempt.seconds, status=attempt.status, error=attempt.failure
    )


@router.get("/channels/{channel_id}/deliveries", operation_id="list_channel_deliveries")
def list_channel_deliveries(
    context: ContextDep,
    channel_id: UUID,
    cursor: Annotated[str | None, Query(max_length=256, description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    state: Annotated[Literal["pending", "delivered", "failed"] | None, Query(description="Only those.")] = None,
) -> DeliveryPage:
    """What was sent to a channel or waits for it, with every attempt, the newest first."""
    with reading(context.engine) as session:
        repository = ChannelRepository(session)
        rows, following = repository.deliveries(_channel(session, channel_id).channel.id, cursor, limit, state)
        attempts = repository.attempts([row.delivery.id for row in rows])
        items = [delivery_answer(row, attempts[row.delivery.id]) for row in rows]
        return DeliveryPage(items=items, next_cursor=following)


@router.post("/channels/{channel_id}/replay", operation_id="replay_channel", status_code=202)
def replay_channel(context: ContextDep, channel_id: UUID, body: Replay) -> ReplayAnswer:
    """Send again, with the same ids and in order, every message that was given up; one of them only once."""
    with writing(context.engine) as session:
        channel = _channel(session, channel_id).channel
        _must_be_on(channel)
        since = 0.0 if body.since is None else body.since.timestamp()
        count = outbox.replay_failed(session, channel.id, time.time(), since)
        channel.failures, channel.paused_until = 0, None
    context.broker.publish("alert", {"change": "replayed"})
    return ReplayAnswer(replayed=count)


@router.post("/deliveries/{delivery_id}/replay", operation_id="replay_delivery", status_code=202)
def replay_delivery(context: ContextDep, delivery_id: UUID) -> DeliveryAnswer:
    """Send a message once more, with the same id."""
    with writing(context.engine) as session:
        repository = ChannelRepository(session)
        row = repository.delivery(delivery_id)
        if row is None:
            raise NotFoundError(f"There is no delivery {delivery_id}.")
        _must_be_on(row.channel)
        outbox.replay(row.delivery, time.time())
        row.channel.failures, row.channel.paused_until = 0, None
        answer = delivery_answer(row, repository.attempts([row.delivery.id])[row.delivery.id])
        run = row.delivery.payload["run"]
        notice = {"alert": str(row.alert.uuid), "run": run["id"], "project": run["project"], "change": "replayed"}
    context.broker.publish("alert", notice)
    return answer


def _channel(session: Session, uuid: UUID) -> ChannelRow:
    found = ChannelRepository(session).by_uuid(uuid)
    if found is None:
        raise NotFoundError(f"There is no channel {uuid}. GET /api/v1/channels lists the channels.")
    return found


def _must_be_on(channel: Channel) -> None:
    if not channel.enabled:
        raise ConflictError(
            f"Channel {channel.name} is off: its receiver answered 410, or somebody switched it off. "
            "Switch it on first; a test message that arrives does so too."
        )


def _limit(session: Session, channel: Channel, body: NewChannel | ChannelChange) -> None:
    """Which alerts the channel gets, as far as `body` says anything of it."""
    repository, given = ChannelRepository(session), body.model_fields_set
    if "project" in given:
        project = repository.project(body.project) if body.project is not None else None
        if body.project is not None and project is None:
            raise field_error("body.project", f"there is no project {body.project}; GET /api/v1/projects lists them")
        channel.project_id = project.id if project else None
    if "run" in given:
        run = repository.run(body.run) if body.run is not None else None
        if body.run is not None and run is None:
            raise field_error("body.run", f"there is no run {body.run}; GET /api/v1/runs lists them")
        channel.run_id = run.id if run else None
    if "rules" in given:
        unknown = sorted(set(body.rules or ()) - set(FAMILY_OF_RULE))
        if unknown:
            raise field_error("body.rules", f"there is no rule {unknown[0]}; there are: {', '.join(FAMILY_OF_RULE)}")
        channel.rules = None if body.rules is None else list(dict.fromkeys(body.rules))


def _secret(kind: ChannelKind, given: str | None) -> str | None:
    try:
        return kind.secret(given)
    except ValueError as error:
        raise field_error("body.secret", str(error)) from error


def _vault(context: Context) -> Vault:
    try:
        return vault_of(context.settings)
    except VaultError as error:
        raise ConflictError(f"Secrets cannot be kept: {error}.") from error


def _flush_named(session: Session, name: str) -> None:
    try:
        session.flush()
    except IntegrityError as error:
        raise ConflictError(f"There is a channel named {name} already. Choose another name, or delete it.") from error
