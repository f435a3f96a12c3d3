"""Writes a message about an alert as it stands, outside of a judgement: when a person or the clock has changed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from service.alerts.message import RunLabel, compose
from service.alerts.record import label_of
from service.alerts.repository import AlertRow
from service.channels.outbox import enqueue
from service.judgements.repository import JudgementRepository
from service.recovery.reading import BEGINNINGS, what_now


def announce(
    session: Session,
    row: AlertRow,
    kind: str,
    number: int,
    about: Sequence[str],
    *,
    now: float,
    base_url: str,
    reason: str | None = None,
    only_channel: int | None = None,
) -> int:
    """Enqueue the message of an alert's change for the channels that want it (or for one); how many there are."""
    alert, run = row.alert, row.run
    judgements = JudgementRepository(session)
    verdict = judgements.verdict(run.id)
    newest = {found.rule: found.body for found in judgements.of_run(run.id)}
    own = {rule: body for rule, body in newest.items() if rule in alert.judgements}
    bodies: dict[str, Any] = {**alert.judgements, **own}
    version = str(verdict.body.get("version", "")) if verdict else ""
    recovery = None
    if alert.family in BEGINNINGS and alert.state != "resolved":
        found = what_now(session, run, [bodies[rule] for rule in alert.rules])
        recovery = found.model_dump(mode="json") if found.needed else None
    message = compose(
        kind,
        number,
        about,
        alert=label_of(alert),
        run=RunLabel(run.uuid, run.name, run.stage, row.project, run.reference or "", version),
        judgements=bodies,
        at=now,
        base_url=base_url,
        reason=reason,
        recovery=recovery,
    )
    return enqueue(session, alert.id, number, run.project_id, message, now, only_channel=only_channel)
