"""What went wrong and what was known to differ: alerts with their history, declared deviations, changes of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from service.alerts.repository import AlertRepository, AlertRow
from service.alerts.schemas import alert_detail
from service.database.models import AlertChange, Run
from service.detect.onset import joint_onset
from service.deviations.repository import DeviationRepository
from service.reports.document import CausePart, DeviationPart, Happened, Incident, SettingChange
from service.rules.repository import Scope, SettingRepository
from service.runs.fields import rfc3339

MOST = 100  # alerts, the newest; changes of settings too
HISTORY = 40  # changes of one alert
WEIGHTS = ("shown", "likely", "possible")
SKIPPED = frozenset({"evidence"})  # a number moved: the newest stands in the judgement


def incidents(session: Session, run: Run, newest: Mapping[str, Mapping[str, Any]], left: list[str]) -> list[Incident]:
    """The run's alerts in the order in which they were raised. `newest` are its latest answers by rule."""
    repository = AlertRepository(session)
    rows, more = repository.page(run=run.uuid, limit=MOST)
    if more is not None:
        left.append(f"alerts before the newest {MOST}")
    return [_incident(row, newest, repository.changes(row.alert.id)) for row in reversed(rows)]


def _incident(row: AlertRow, newest: Mapping[str, Mapping[str, Any]], changes: Sequence[AlertChange]) -> Incident:
    alert = row.alert
    bodies = alert_detail(row, "", newest, [], []).judgements
    # What a resolved alert kept last says "no": when it began is in its history.
    said = [*bodies.values(), *_recorded(changes)]
    began = joint_onset(body for body in said if body.get("state") == "yes")
    tokens = None if began is None else began[1]
    known = tokens is not None and all(isinstance(end, int | float) for end in tokens)
    return Incident(
        id=str(alert.uuid), title=alert.title, family=alert.family, severity=alert.severity, state=alert.state,
        rules=[str(rule) for rule in alert.rules], opened_at=rfc3339(alert.opened_at), opened_step=alert.opened_step,
        resolved_at=None if alert.resolved_at is None else rfc3339(alert.resolved_at),
        onset_steps=None if began is None else (int(began[0][0]), int(began[0][1])),
        onset_tokens=(float(tokens[0]), float(tokens[1])) if known and tokens is not None else None,
        summaries=[str(bodies[rule].get("summary", "")) for rule in alert.rules if rule in bodies],
        causes=_causes(said),
        history=[_happened(change) for change in changes if change.kind not in SKIPPED][-HISTORY:],
    )  # fmt: skip


def _recorded(changes: Sequence[AlertChange]) -> list[Mapping[str, Any]]:
    """Every judgement that the history of an alert holds."""
    found: list[Mapping[str, Any]] = []
    for change in changes:
        kept: Mapping[str, Any] = change.body.get("judgements") or {}
        found += [body for body in kept.values() if isinstance(body, Mapping)]
    return found


def _causes(bodies: Sequence[Mapping[str, Any]]) -> list[CausePart]:
    """Each cause once with its strongest weight; those that are ruled out are left out."""
    best: dict[str, CausePart] = {}
    for body in bodies:
        for cause in body.get("causes") or () if body.get("state") == "yes" else ():
            if cause["weight"] not in WEIGHTS:
                continue
            held = best.get(cause["name"])
            if held is None or WEIGHTS.index(cause["weight"]) < WEIGHTS.index(held.weight):
                best[cause["name"]] = CausePart(name=cause["name"], weight=cause["weight"], because=cause["because"])
    return sorted(best.values(), key=lambda cause: WEIGHTS.index(cause.weight))


def _happened(change: AlertChange) -> Happened:
    body: dict[str, Any] = change.body
    note = next((str(body[name]) for name in ("note", "reason", "comment", "text") if body.get(name)), "")
    return Happened(kind=change.kind, at=rfc3339(change.at), by=str(body.get("by") or ""), note=note)


def deviations(session: Session, run: Run) -> list[DeviationPart]:
    """Every declared deviation, ended ones too."""
    return [
        DeviationPart(
            text=row.description, item=row.item, budgets={m: float(b) for m, b in row.budgets.items()},
            from_step=row.from_step, from_tokens=row.from_tokens, end_step=row.end_step, end_tokens=row.end_tokens,
            end_at=None if row.end_at is None else rfc3339(row.end_at), by=row.declared_by,
            declared_at=rfc3339(row.declared_at),
        )
        for row in DeviationRepository(session).of_run(run.id)
    ]  # fmt: skip


def setting_changes(session: Session, run: Run, left: list[str]) -> list[SettingChange]:
    """Every change of a rule that concerned the run, its project's too, in order."""
    rows, more = SettingRepository(session).history(Scope(run.project_id, run.id), kind="rule", limit=MOST)
    if more is not None:
        left.append(f"changes of settings before the newest {MOST}")
    return [
        SettingChange(
            rule=row.subject, scope="project" if row.run_id is None else "run", at=rfc3339(row.at), by=row.by,
            reason=row.reason, old=row.old, new=row.new,
        )
        for row in reversed(rows)
    ]  # fmt: skip
