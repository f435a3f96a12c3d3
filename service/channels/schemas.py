"""What the API says about channels and deliveries. A secret is shown once, in the answer that creates its channel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from service.channels.kinds import KINDS
from service.channels.names import GroupName, KindName
from service.channels.repository import ChannelRow, DeliveryRow
from service.channels.vault import VaultError, vault_of
from service.database.models import DeliveryAttempt
from service.runs.fields import Time
from service.settings import Settings

Severity = Literal["info", "warning", "critical"]


class NewChannel(BaseModel):
    """A channel to be made. `kind` says how messages are written; `project` keeps it to one project's alerts."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=256)
    kind: KindName
    url: str = Field(min_length=1, max_length=2048)
    secret: str | None = Field(
        default=None, max_length=256, description="Of a webhook: whsec_ and base64. Made by the service if left out."
    )
    project: str | None = Field(default=None, max_length=256)
    run: UUID | None = Field(default=None, description="Only alerts of this run.")
    rules: list[str] | None = Field(
        default=None, min_length=1, max_length=64, description="Only alerts that one of these rules joined."
    )
    min_severity: Severity = Field(default="info", description="Only alerts at least this severe.")
    group_by: GroupName = Field(
        default=GroupName.none, description="One message for alerts of one run, or of one project, that come together."
    )
    group_wait_seconds: float = Field(
        default=30.0, ge=0.0, le=3600.0, description="How long the first message of a group waits for others."
    )
    repeat_hours: float | None = Field(
        default=None, ge=1 / 60, le=24.0 * 30, description="Say again what still fires and nobody has acknowledged."
    )


class ChannelChange(BaseModel):
    """What to change of a channel; what is left out stays. A null takes a limit away."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="", min_length=1, max_length=256)
    enabled: bool = True
    project: str | None = Field(default=None, max_length=256)
    run: UUID | None = None
    rules: list[str] | None = Field(default=None, min_length=1, max_length=64)
    min_severity: Severity = "info"
    group_by: GroupName = GroupName.none
    group_wait_seconds: float = Field(default=30.0, ge=0.0, le=3600.0)
    repeat_hours: float | None = Field(default=None, ge=1 / 60, le=24.0 * 30)


class SecretChange(BaseModel):
    """A new secret. The one before also signs for `overlap_hours`, so that the receiver can be changed meanwhile."""

    model_config = ConfigDict(extra="forbid")

    secret: str | None = Field(default=None, max_length=256, description="Made by the service if left out.")
    overlap_hours: float = Field(default=24.0, ge=0.0, le=24.0 * 30)


class ChannelAnswer(BaseModel):
    """A channel. `url` leaves out what must stay secret; `enabled` is false once a receiver has answered 410.

    `paused_until` is set while the circuit breaker holds messages back, after `failures` failed attempts in a row.
    `waiting` counts messages that are still to be sent, `failed` those that were given up and can be replayed.
    """

    id: UUID
    name: str
    kind: str
    url: str
    project: str | None
    run: UUID | None
    rules: list[str] | None
    min_severity: str
    group_by: str
    group_wait_seconds: float
    repeat_hours: float | None
    enabled: bool
    failures: int
    paused_until: Time | None
    secret_overlap_until: Time | None
    created_at: Time
    waiting: int
    failed: int


class CreatedChannel(ChannelAnswer):
    """A new channel with its secret, which is never shown again."""

    secret: str | None


class ChannelList(BaseModel):
    """Every channel, by name."""

    items: list[ChannelAnswer]


class AttemptAnswer(BaseModel):
    """One try. `status` is null where no answer came; `error` is null where it was delivered."""

    number: int
    at: Time
    seconds: float
    status: int | None
    error: str | None


class TestAnswer(BaseModel):
    """What came of a test message."""

    delivered: bool
    seconds: float
    status: int | None
    error: str | None


class DeliveryAnswer(BaseModel):
    """One message to one channel. `id` is the `webhook-id` that its receiver saw, the same at every attempt."""

    id: UUID
    alert: UUID
    channel: UUID
    channel_name: str
    change: int
    type: str
    state: str
    attempts: list[AttemptAnswer]
    next_attempt_at: Time | None
    created_at: Time
    delivered_at: Time | None


class Replay(BaseModel):
    """Which of the messages that were given up to send again: those written since a time, or all."""

    model_config = ConfigDict(extra="forbid")

    since: AwareDatetime | None = None


class ReplayAnswer(BaseModel):
    """How many messages are sent again."""

    replayed: int


class DeliveryPage(BaseModel):
    """Deliveries, the newest first; `next_cursor` is null on the last page."""

    items: list[DeliveryAnswer]
    next_cursor: str | None


def channel_answer(row: ChannelRow, settings: Settings) -> ChannelAnswer:
    """A channel without its secrets; one that this version does not know or cannot open shows no address."""
    channel, now = row.channel, time.time()
    kind = KINDS.get(channel.kind)
    try:
        shown = kind.shown(vault_of(settings).open(channel.url)) if kind else ""
    except VaultError:
        shown = ""
    paused = channel.paused_until if (channel.paused_until or 0.0) > now else None
    overlap = channel.previous_until if channel.previous_secret and (channel.previous_until or 0.0) > now else None
    return ChannelAnswer(
        id=channel.uuid,
        name=channel.name,
        kind=channel.kind,
        url=shown,
        project=row.project,
        run=row.run,
        rules=channel.rules,
        min_severity=channel.min_severity,
        group_by=channel.group_by,
        group_wait_seconds=channel.group_wait,
        repeat_hours=None if channel.repeat_seconds is None else channel.repeat_seconds / 3600.0,
        enabled=channel.enabled,
        failures=channel.failures,
        paused_until=paused,
        secret_overlap_until=overlap,
        created_at=channel.created_at,
        waiting=row.waiting,
        failed=row.failed,
    )


def delivery_answer(row: DeliveryRow, attempts: Sequence[DeliveryAttempt]) -> DeliveryAnswer:
    """A delivery with its attempts."""
    delivery, alert, channel = row.delivery, row.alert, row.channel
    return DeliveryAnswer(
        id=delivery.uuid,
        alert=alert.uuid,
        channel=channel.uuid,
        channel_name=channel.name,
        change=delivery.change_number,
        type=delivery.payload["type"],
        state=delivery.state,
        attempts=[
            AttemptAnswer(number=a.number, at=a.at, seconds=a.seconds, status=a.status, error=a.error) for a in attempts
        ],
        next_attempt_at=delivery.next_attempt_at if delivery.state == "pending" else None,
        created_at=delivery.created_at,
        delivered_at=delivery.delivered_at,
    )
