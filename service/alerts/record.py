"""Turns judgements into alerts, their changes and their messages, all in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.orm import Session

from service.alerts.episodes import CLEAR_LEVEL, Change, Episode, advance
from service.alerts.held import settle
from service.alerts.message import AlertLabel, RunLabel, compose, severity_of, title_of
from service.alerts.repository import AlertRepository
from service.channels.outbox import enqueue
from service.database.models import Alert, Run
from service.detect.judgement import Judgement
from service.judgements.bodies import to_body
from service.recovery.reading import BEGINNINGS, what_now


@dataclass(frozen=True, slots=True)
class RunKey:
    """The run that was judged: its row ids, and how messages name it."""

    run_id: int
    project_id: int
    label: RunLabel


@dataclass(frozen=True, slots=True)
class Recorded:
    """One change that was written: `number` within its alert. `messages` counts the channels that will hear of it."""

    alert: UUID
    family: str
    kind: str
    state: str
    messages: int
    number: int = 0


def record(
    session: Session,
    run: RunKey,
    judgements: Sequence[Judgement],
    family_of_rule: Mapping[str, str],
    *,
    now: float,
    clear_seconds: float,
    base_url: str,
    clear_level: float = CLEAR_LEVEL,
    silenced: Mapping[str, str] | None = None,
    rewound: str | None = None,
) -> list[Recorded]:
    """Bring a run's alerts up to what was just judged. Only one caller at a time may do so for one run.

    `silenced`: rules that raise nothing now, with the reason. `rewound`: what superseded a part of the run since it was
    judged last; rules that no longer say yes are taken back for that reason.
    """
    repository = AlertRepository(session)
    open_alerts, held = repository.current_of(run.run_id)
    families: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        families.setdefault(family_of_rule[judgement.rule], []).append(judgement)
    recorded: list[Recorded] = []
    for family, answers in families.items():
        alert = open_alerts.get(family)
        before = episode_of(repository, alert) if alert else None
        withdrawn = dict(silenced or {})
        if rewound is not None:
            withdrawn |= {answer.rule: rewound for answer in answers if answer.state != "yes"}
        for resolved in held:
            if resolved.family == family:
                recorded += _settle(repository, resolved, answers, now, clear_seconds, withdrawn)
        closed = {rule for resolved in held if resolved.family == family for rule in resolved.held or ()}
        answers = [answer for answer in answers if answer.rule not in closed]
        after, changes = advance(before, answers, now, clear_seconds, withdrawn, clear_level)
        if after is None or not changes:
            continue
        alert = alert or _new(session, run, family, now, max(answer.at_step for answer in answers))
        _update(alert, after, run.label.name, now)
        session.flush()
        bodies = {answer.rule: to_body(answer) for answer in answers}
        for change in changes:
            recorded.append(_write(session, repository, run, alert, change, bodies, now, base_url))
    return recorded


def _settle(
    repository: AlertRepository,
    alert: Alert,
    answers: Sequence[Judgement],
    now: float,
    clear_seconds: float,
    withdrawn: Mapping[str, str],
) -> list[Recorded]:
    """Let the rules go that a person's resolving still holds back, as far as they have cleared since."""
    alert.held = settle(alert.held or {}, answers, now, clear_seconds, withdrawn) or None
    if alert.held is not None:
        return []
    number = repository.add_change(alert, "settled", now, {"rules": list(alert.rules)})
    return [Recorded(alert.uuid, alert.family, "settled", alert.state, 0, number)]


def episode_of(repository: AlertRepository, alert: Alert) -> Episode:
    """An alert as the state machine sees it; whether it is clearing is told by its changes."""
    last = repository.last_change(alert.id, ("clearing", "reopened"))
    clearing = (last.at, int(last.body["step"])) if last and last.kind == "clearing" else None
    return Episode(alert.state, tuple(alert.rules), alert.judgements, clearing)  # pyright: ignore[reportArgumentType]


def _new(session: Session, run: RunKey, family: str, now: float, step: int) -> Alert:
    alert = Alert(
        uuid=uuid4(),
        run_id=run.run_id,
        family=family,
        state="firing",
        severity="warning",
        title="",
        rules=[],
        judgements={},
        opened_at=now,
        opened_step=step,
        updated_at=now,
    )
    session.add(alert)
    return alert


def _update(alert: Alert, episode: Episode, run_name: str, now: float) -> None:
    alert.state = episode.state
    alert.rules = list(episode.rules)
    alert.judgements = dict(episode.judgements)
    alert.severity = severity_of(episode.rules)
    alert.title = title_of(run_name, episode.rules, episode.judgements)
    if episode.state == "resolved":
        alert.resolved_at = now


def _write(
    session: Session,
    repository: AlertRepository,
    run: RunKey,
    alert: Alert,
    change: Change,
    bodies: Mapping[str, Mapping[str, Any]],
    now: float,
    base_url: str,
) -> Recorded:
    number = repository.add_change(alert, change.kind, now, {"rules": list(change.rules), **change.body})
    messages = 0
    if change.is_message and (change.kind == "resolved" or not is_muted(alert)):
        label = label_of(alert)
        message = compose(
            change.kind,
            number,
            change.rules,
            alert=label,
            run=run.label,
            judgements=bodies,
            at=now,
            base_url=base_url,
            reason=change.body.get("reason"),
            recovery=_what_now(session, run, alert, bodies),
        )
        messages = enqueue(session, alert.id, number, run.project_id, message, now)
    return Recorded(alert.uuid, alert.family, change.kind, alert.state, messages, number)


def label_of(alert: Alert) -> AlertLabel:
    """How messages speak of an alert."""
    return AlertLabel(
        alert.uuid, alert.family, alert.state, alert.rules, alert.opened_at, alert.opened_step, alert.resolved_at
    )


def is_muted(alert: Alert) -> bool:
    """Whether its messages wait: a mute holds until the change that ends it is written (service.alerts.due)."""
    return alert.muted_until is not None


def _what_now(
    session: Session, run: RunKey, alert: Alert, bodies: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Where to restart, by the rules that joined; None where none of them says yes, or the fault is not in weights."""
    if alert.family not in BEGINNINGS or alert.state == "resolved":
        return None
    told = [bodies[rule] for rule in alert.rules if rule in bodies]
    found = what_now(session, session.get_one(Run, run.run_id), told)
    return found.model_dump(mode="json") if found.needed else None
