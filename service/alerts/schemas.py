"""What the API says about alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from service.alerts.episodes import WITHDRAWN
from service.alerts.repository import AlertRow
from service.channels.schemas import DeliveryAnswer
from service.database.models import AlertChange
from service.recovery.schemas import RecoveryAnswer
from service.runs.fields import Time

Severity = Literal["info", "warning", "critical"]
MAX_MUTE = 30 * 86400.0  # seconds


class AlertSummary(BaseModel):
    """One alert in a list. `state` is firing, acknowledged or resolved; `severity` critical or warning.

    Until `muted_until` it sends no messages; null: it is not muted."""

    id: UUID
    url: str
    run: UUID
    run_name: str
    stage: str
    project: str
    family: str
    state: str
    severity: str
    title: str
    rules: list[str]
    opened_at: Time
    opened_step: int
    updated_at: Time
    resolved_at: Time | None
    muted_until: Time | None
    assignee: str | None


class AlertPage(BaseModel):
    """Alerts, the newest first; `next_cursor` is null on the last page."""

    items: list[AlertSummary]
    next_cursor: str | None


class ChangeAnswer(BaseModel):
    """One thing that happened: firing, joined, evidence, clearing, reopened, withdrawn, resolved, settled, repeated; or
    that a person did (then `body` holds `by`, `note`, `via`, `address`): acknowledged, muted, unmuted, assigned,
    commented, resolved. `event` is its place in the stream."""

    number: int
    event: int
    kind: str
    at: Time
    body: dict[str, Any]


class AlertDetail(AlertSummary):
    """An alert with its evidence. `judgements` maps each rule that joined to its newest yes or no.

    `recovery` says where to restart from; null where the alert is resolved or not about the weights."""

    judgements: dict[str, Any]
    recovery: RecoveryAnswer | None
    changes: list[ChangeAnswer]
    deliveries: list[DeliveryAnswer]


class Acknowledgement(BaseModel):
    """Who does something to an alert, and what they say about it. `via` names the client (a bot, a chat); by default
    what its User-Agent says."""

    model_config = ConfigDict(extra="forbid")

    by: str = Field(min_length=1, max_length=256)
    note: str = Field(default="", max_length=4000)
    via: str | None = Field(default=None, min_length=1, max_length=64)


class Mute(Acknowledgement):
    """How long messages are held back: `until` a time, or for so many `minutes`; 30 days at most."""

    until: AwareDatetime | None = None
    minutes: float | None = Field(default=None, gt=0.0, le=MAX_MUTE / 60.0)


class Assignment(Acknowledgement):
    """Whose the alert is from now on; null: nobody's."""

    assignee: str | None = Field(min_length=1, max_length=256)


class Comment(Acknowledgement):
    """What somebody writes beside an alert."""

    note: str = Field(min_length=1, max_length=4000)


def alert_summary(row: AlertRow, base_url: str) -> AlertSummary:
    """An alert as a list shows it."""
    alert = row.alert
    return AlertSummary(
        id=alert.uuid,
        url=f"{base_url}/alerts/{alert.uuid}",
        run=row.run.uuid,
        run_name=row.run.name,
        stage=row.run.stage,
        project=row.project,
        family=alert.family,
        state=alert.state,
        severity=alert.severity,
        title=alert.title,
        rules=alert.rules,
        opened_at=alert.opened_at,
        opened_step=alert.opened_step,
        updated_at=alert.updated_at,
        resolved_at=alert.resolved_at,
        muted_until=alert.muted_until,
        assignee=alert.assignee,
    )


def alert_detail(
    row: AlertRow,
    base_url: str,
    newest: Mapping[str, Mapping[str, Any]],
    changes: Sequence[AlertChange],
    deliveries: Sequence[DeliveryAnswer],
    recovery: RecoveryAnswer | None = None,
) -> AlertDetail:
    """An alert as its page shows it. `newest` are the run's latest judgements; a resolved alert keeps its own."""
    kept = dict(row.alert.judgements)
    if row.alert.state != "resolved":
        withdrawn = {rule: body[WITHDRAWN] for rule, body in kept.items() if body.get(WITHDRAWN)}
        kept |= {rule: dict(body) for rule, body in newest.items() if rule in kept and body["state"] != "cannot tell"}
        for rule, reason in withdrawn.items():
            kept[rule] = {**kept[rule], WITHDRAWN: reason}
    return AlertDetail(
        **dict(alert_summary(row, base_url)),
        judgements=kept,
        recovery=recovery,
        changes=[change_answer(change) for change in changes],
        deliveries=list(deliveries),
    )


def change_answer(change: AlertChange) -> ChangeAnswer:
    """One thing that happened."""
    return ChangeAnswer(number=change.number, event=change.event, kind=change.kind, at=change.at, body=change.body)
