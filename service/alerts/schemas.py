"""What the API says about alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from service.alerts.episodes import WITHDRAWN
from service.alerts.repository import AlertRow
from service.channels.schemas import DeliveryAnswer
from service.database.models import AlertChange
from service.recovery.schemas import RecoveryAnswer
from service.runs.fields import Time


class AlertSummary(BaseModel):
    """One alert in a list. `state` is firing, acknowledged or resolved; `severity` critical or warning."""

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


class AlertPage(BaseModel):
    """Alerts, the newest first; `next_cursor` is null on the last page."""

    items: list[AlertSummary]
    next_cursor: str | None


class ChangeAnswer(BaseModel):
    """One thing that happened: firing, joined, evidence, clearing, reopened, acknowledged, withdrawn or resolved."""

    number: int
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
    """Who has seen an alert, and what they say about it."""

    model_config = ConfigDict(extra="forbid")

    by: str = Field(min_length=1, max_length=256)
    note: str = Field(default="", max_length=4000)


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
        changes=[ChangeAnswer(number=c.number, kind=c.kind, at=c.at, body=c.body) for c in changes],
        deliveries=list(deliveries),
    )
