"""The outbox: messages written in the alert's own transaction, claimed, sent, and recorded attempt by attempt.

A claim is a time until which nobody else sends the message, so that the claims of a killed process come back by
themselves. Messages of one alert to one channel go out in order: a later one waits until the earlier is through.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.orm import Session

from service.alerts.severity import SEVERITIES
from service.channels.grouping import bundle, gather
from service.channels.outbox_repository import OutboxRepository
from service.channels.sending import Reply
from service.database.models import Channel, Delivery, DeliveryAttempt

# Seconds from one attempt to the next, as Standard Webhooks 1.0.0 recommends; after the last one a message has failed.
SCHEDULE = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
JITTER = 0.1  # of a wait, added at random
LONGEST_WAIT = 86400.0  # seconds; whatever Retry-After says
GONE = 410
THROTTLED = (408, 429)
BREAK_AFTER = 5  # failures in a row after which a channel rests
FIRST_REST, LONGEST_REST = 60.0, 3600.0  # seconds; each further failure doubles the rest


@dataclass(frozen=True, slots=True)
class Claim:
    """One message to send now, with address and secrets as the vault keeps them. `until`: when the claim lapses (unix
    seconds)."""

    delivery_id: int
    message_id: str
    channel_id: int
    kind: str
    url: str
    secret: str | None
    message: Mapping[str, Any]
    until: float
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try: when it began and how long it took, in seconds; the answer, or why there was none."""

    at: float
    seconds: float
    reply: Reply | None = None
    error: str | None = None

    @property
    def delivered(self) -> bool:
        """Only 2xx counts; a redirect is a failure."""
        return self.reply is not None and 200 <= self.reply.status < 300

    @property
    def status(self) -> int | None:
        """HTTP status of the answer."""
        return self.reply.status if self.reply else None

    @property
    def failure(self) -> str | None:
        """Why it was not delivered, in one line."""
        return None if self.delivered else self.error or f"answered {self.status}"


def enqueue(
    session: Session,
    alert_id: int,
    number: int,
    project_id: int,
    message: Mapping[str, Any],
    now: float,
    *,
    only_channel: int | None = None,
) -> int:
    """Write the message of an alert's change for every channel that wants it (or for one); how many will get it.

    For a channel that is off it is written as given up: a replay sends it once the channel is on again.
    """
    wanting = OutboxRepository(session).channels_for(project_id, UUID(message["run"]["id"]), only_channel)
    alert = message["alert"]
    channels = [found for found in wanting if routed(found, alert["severity"], alert["rules"])]
    for channel in channels:
        session.add(
            Delivery(
                uuid=uuid4(),
                alert_id=alert_id,
                change_number=number,
                channel_id=channel.id,
                state="pending" if channel.enabled else "failed",
                attempts=0,
                next_attempt_at=now + (channel.group_wait if channel.group_by != "none" else 0.0),
                payload=dict(message),
                created_at=now,
            )
        )
    return sum(channel.enabled for channel in channels)


def routed(channel: Channel, severity: str, rules: Sequence[str]) -> bool:
    """Whether a channel wants an alert of this severity that these rules joined. An alert that came to it once keeps
    coming: rules are never taken from an alert, and none lowers its severity."""
    if SEVERITIES.index(severity) < SEVERITIES.index(channel.min_severity):
        return False
    return channel.rules is None or any(rule in channel.rules for rule in rules)


def is_due(session: Session, now: float, busy: Collection[int]) -> bool:
    """Whether `claim` would find anything."""
    return bool(OutboxRepository(session).ready(now, busy, 1))


def claim(session: Session, now: float, lease: float, busy: Collection[int], limit: int) -> list[Claim]:
    """Take at most one due message of each channel that is not `busy`, `limit` in all, for `lease` seconds."""
    claims: list[Claim] = []
    until, repository = now + lease, OutboxRepository(session)
    for channel_id in repository.ready(now, busy, limit):
        delivery = repository.first_due(channel_id, now)
        if delivery is None:  # another process was quicker
            continue
        channel = session.get_one(Channel, channel_id)
        message = bundle(gather(repository, delivery, channel), channel.group_by)
        delivery.claimed_until = until
        claims.append(
            Claim(
                delivery.id,
                str(delivery.uuid),
                channel.id,
                channel.kind,
                channel.url,
                channel.secret,
                message,
                until,
                channel.previous_secret if (channel.previous_until or 0.0) > now else None,
            )
        )
    return claims


def record(
    session: Session,
    claimed: Claim,
    attempt: Attempt,
    schedule: Sequence[float] = SCHEDULE,
    chance: Callable[[], float] = random.random,
) -> Delivery | None:
    """Keep an attempt and what follows from it; the delivery after it, or None if it has been deleted.

    410 disables the channel and gives up what it still waits for. An attempt that outlived its claim counts only if it
    was successful: another process may be at it by now.
    """
    repository = OutboxRepository(session)
    delivery = repository.locked(claimed.delivery_id)
    if delivery is None:
        return None
    delivery.attempts += 1
    session.add(
        DeliveryAttempt(
            delivery_id=delivery.id,
            number=delivery.attempts,
            at=attempt.at,
            seconds=attempt.seconds,
            status=attempt.status,
            error=attempt.failure[:512] if attempt.failure else None,
        )
    )
    ended = attempt.at + attempt.seconds
    _count(repository, claimed.channel_id, attempt, ended)
    if attempt.delivered:
        delivery.state, delivery.delivered_at, delivery.claimed_until = "delivered", ended, None
        repository.share(delivery)
        return delivery
    if delivery.state != "pending" or delivery.claimed_until != claimed.until:
        return delivery
    delivery.claimed_until = None
    gone = attempt.status == GONE
    if gone:
        repository.disable(claimed.channel_id)
    if gone or delivery.attempts > len(schedule):
        delivery.state = "failed"
        repository.share(delivery)
    else:
        wait = schedule[delivery.attempts - 1] * (1.0 + JITTER * chance())
        asked = retry_after(attempt.reply, ended) if attempt.reply else 0.0
        delivery.next_attempt_at = ended + max(wait, asked)
    return delivery


def retry_after(reply: Reply, now: float) -> float:
    """Seconds that a receiver asks to wait, 0 if it does not ask or cannot be understood.

    `Retry-After` as RFC 9110 has it, or `retry_after` in the JSON body of a 429, which is Discord's own form.
    """
    return max(_header_wait(reply, now), _body_wait(reply))


def _body_wait(reply: Reply) -> float:
    if reply.status != THROTTLED[1]:
        return 0.0
    try:
        asked = json.loads(reply.body)["retry_after"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0.0
    usable = isinstance(asked, int | float) and not isinstance(asked, bool) and asked > 0  # NaN is not
    return min(float(asked), LONGEST_WAIT) if usable else 0.0


def _header_wait(reply: Reply, now: float) -> float:
    value = reply.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), LONGEST_WAIT)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    return min(max(0.0, at.replace(tzinfo=at.tzinfo or UTC).timestamp() - now), LONGEST_WAIT)


def replay(delivery: Delivery, now: float) -> None:
    """Send a message once more, with the same id. One that had failed gets one more attempt."""
    for name, value in _again(now).items():
        setattr(delivery, name, value)


def replay_failed(session: Session, channel_id: int, now: float, since: float = 0.0) -> int:
    """Send again what was given up for a channel (of what was written `since`, unix seconds), each with its id, in
    order within an alert; how many messages that is."""
    return OutboxRepository(session).replay_failed(channel_id, since, _again(now))


def _again(now: float) -> dict[str, Any]:
    """What is set of a message that is to be sent once more."""
    return {"state": "pending", "next_attempt_at": now, "delivered_at": None, "sent_with": None}


def _count(repository: OutboxRepository, channel_id: int, attempt: Attempt, ended: float) -> None:
    """The circuit breaker: a receiver that fails again and again is left alone, then tried with one message.

    An answer that refuses one message (4xx) says nothing about the others.
    """
    channel = repository.counted(channel_id)
    if channel is None:
        return
    status = attempt.status
    if status is not None and status < 500 and status not in THROTTLED:
        if channel.failures or channel.paused_until is not None:
            channel.failures, channel.paused_until = 0, None
        return
    channel.failures += 1
    if channel.failures >= BREAK_AFTER:
        rest = min(FIRST_REST * 2.0 ** min(channel.failures - BREAK_AFTER, 10), LONGEST_REST)
        channel.paused_until = ended + rest
