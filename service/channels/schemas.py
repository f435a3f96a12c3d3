"""What the API says about channels and deliveries. A secret is shown once, in the answer that creates its channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from service.channels.kinds import KINDS
from service.channels.repository import DeliveryRow
from service.database.models import Channel, DeliveryAttempt
from service.runs.fields import Time


class NewChannel(BaseModel):
    """A channel to be made. `kind` says how messages are written; `project` keeps it to one project's alerts."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=256)
    kind: Literal["webhook", "slack"]
    url: str = Field(min_length=1, max_length=2048)
    secret: str | None = Field(
        default=None, max_length=256, description="Of a webhook: whsec_ and base64. Made by the service if left out."
    )
    project: str | None = Field(default=None, max_length=256)


class ChannelAnswer(BaseModel):
    """A channel. `url` leaves out what must stay secret; `enabled` is false once a receiver has answered 410."""

    id: UUID
    name: str
    kind: str
    url: str
    project: str | None
    enabled: bool
    created_at: Time


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


class DeliveryPage(BaseModel):
    """Deliveries, the newest first; `next_cursor` is null on the last page."""

    items: list[DeliveryAnswer]
    next_cursor: str | None


def channel_answer(channel: Channel, project: str | None) -> ChannelAnswer:
    """A channel without its secrets; one of a kind that this version does not know shows no address."""
    kind = KINDS.get(channel.kind)
    return ChannelAnswer(
        id=channel.uuid,
        name=channel.name,
        kind=channel.kind,
        url=kind.shown(channel.url) if kind else "",
        project=project,
        enabled=channel.enabled,
        created_at=channel.created_at,
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
