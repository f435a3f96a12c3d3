"""The text of an alert's page, from the API's own answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from service.alerts.endpoints import read_alert
from service.alerts.schemas import ChangeAnswer
from service.channels.schemas import DeliveryAnswer
from service.context import Context
from web import formatting
from web.content.headline import all_evidence, causes, in_order, next_checks, onset

CHANGES = {
    "firing": "Raised",
    "joined": "Joined",
    "evidence": "New evidence",
    "clearing": "Clearing",
    "reopened": "Back again",
    "acknowledged": "Acknowledged",
    "resolved": "Resolved",
    "withdrawn": "Withdrawn",
    "settled": "Good again",
    "muted": "Muted",
    "unmuted": "Mute over",
    "assigned": "Assigned",
    "commented": "Comment",
    "repeated": "Said again",
}


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One thing that happened to the alert."""

    at: float
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class DeliveryLine:
    """One message to one channel and how it went."""

    channel: str
    state: str
    attempts: int
    answer: str


@dataclass(frozen=True, slots=True)
class AlertPage:
    """An alert with its evidence. `tone` colours the frame; `causes` and `next_checks` are ranked."""

    uuid: UUID
    title: str
    state: str
    severity: str
    family: str
    tone: str
    muted_until: float | None
    assignee: str | None
    run_uuid: UUID
    run_name: str
    opened_at: float
    opened_step: int
    since_step: Sequence[float] | None
    since_tokens: Sequence[float] | None
    causes: Sequence[Mapping[str, Any]]
    next_checks: Sequence[str]
    judgements: Sequence[Mapping[str, Any]]
    evidence: Sequence[Mapping[str, Any]]
    changes: Sequence[ChangeLine]
    deliveries: Sequence[DeliveryLine]


def alert_page(context: Context, uuid: UUID) -> AlertPage:
    """The page of one alert.

    Raises:
        NotFoundError: no alert has this id.
    """
    alert = read_alert(context, uuid)
    began = onset(alert.judgements)
    tone = "ok" if alert.state == "resolved" else "bad" if alert.severity == "critical" else "warn"
    return AlertPage(
        uuid=alert.id,
        title=alert.title,
        state=alert.state,
        severity=alert.severity,
        family=alert.family,
        tone=tone,
        muted_until=alert.muted_until,
        assignee=alert.assignee,
        run_uuid=alert.run,
        run_name=alert.run_name,
        opened_at=alert.opened_at,
        opened_step=alert.opened_step,
        since_step=began[0] if began else None,
        since_tokens=began[1] if began else None,
        causes=causes(alert.judgements),
        next_checks=next_checks(alert.judgements),
        judgements=in_order(alert.judgements),
        evidence=all_evidence(alert.judgements),
        changes=[_change(change) for change in alert.changes],
        deliveries=[_delivery(delivery) for delivery in alert.deliveries],
    )


def _change(change: ChangeAnswer) -> ChangeLine:
    rules = ", ".join(formatting.rule_title(rule) for rule in change.body.get("rules") or ())
    text = rules
    if "by" in change.body:
        return ChangeLine(change.at, CHANGES.get(change.kind, change.kind.capitalize()), _by_hand(change))
    if change.kind == "repeated":
        text = f"to {change.body.get('channel', '')}"
    elif change.body.get("step") is not None:
        text = f"{rules} at step {formatting.step(change.body['step'])}".strip()
    if change.body.get("reason"):
        text = f"{text or rules}: {change.body['reason']}"
    return ChangeLine(change.at, CHANGES.get(change.kind, change.kind.capitalize()), text)


def _by_hand(change: ChangeAnswer) -> str:
    """Who did it, through what, and what they said."""
    body, text = change.body, ""
    if change.kind == "muted":
        text = f"until {formatting.utc(body['until'])} "
    if change.kind == "assigned":
        text = f"to {body['assignee']} " if body.get("assignee") else "to nobody "
    via = f" ({body['via']})" if body.get("via") else ""
    note = f": {body['note']}" if body.get("note") else ""
    return f"{text}by {body['by']}{via}{note}"


def _delivery(delivery: DeliveryAnswer) -> DeliveryLine:
    last = delivery.attempts[-1] if delivery.attempts else None
    answer = "" if last is None else last.error or f"{last.status} in {last.seconds:.2f} s"
    return DeliveryLine(delivery.channel_name, delivery.state, len(delivery.attempts), answer)
