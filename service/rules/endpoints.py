"""Settings of rules: what counts for a project or a run, setting it, taking it back, and its history."""

from __future__ import annotations

import time
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from sqlalchemy.orm import Session

from service.context import Context, ContextDep
from service.database.engine import reading, writing
from service.database.models import RuleSetting
from service.detect.engine import FAMILY_OF_RULE
from service.detect.settings import LIMITS
from service.errors import NotFoundError, field_error
from service.judgements.repository import JudgementRepository
from service.rules.effective import Effective, effective
from service.rules.repository import SettingRepository
from service.rules.schemas import ChangePage, NewSetting, RuleAnswer, RuleList, change_page, rule_answer, setting_body
from service.rules.scopes import Place, known_rule, place_of_project, place_of_run, publish

router = APIRouter(tags=["rules"])

Slug = Annotated[str, Path(max_length=256)]
Rule = Annotated[str, Path(max_length=64)]
By = Annotated[str, Query(min_length=1, max_length=256, description="Who says so.")]
Reason = Annotated[str, Query(max_length=4000)]
Cursor = Annotated[str | None, Query(max_length=256, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500)]
Which = Annotated[str | None, Query(max_length=64, description="Only this rule.")]


@router.get("/projects/{slug}/rules", operation_id="list_project_rules")
def list_project_rules(context: ContextDep, slug: Slug) -> RuleList:
    """Every rule and what counts for it in a project."""
    with reading(context.engine) as session:
        return _listed(session, place_of_project(session, slug))


@router.get("/runs/{run_id}/rules", operation_id="list_run_rules")
def list_run_rules(context: ContextDep, run_id: UUID) -> RuleList:
    """Every rule and what counts for it in a run: the run's settings over the project's over the shipped ones."""
    with reading(context.engine) as session:
        return _listed(session, place_of_run(session, run_id))


@router.get("/projects/{slug}/rules/history", operation_id="list_project_rule_changes")
def list_project_rule_changes(
    context: ContextDep, slug: Slug, rule: Which = None, cursor: Cursor = None, limit: Limit = 50
) -> ChangePage:
    """Every change of a project's settings, the newest first."""
    with reading(context.engine) as session:
        return history(session, place_of_project(session, slug), "rule", rule, cursor, limit)


@router.get("/runs/{run_id}/rules/history", operation_id="list_run_rule_changes")
def list_run_rule_changes(
    context: ContextDep, run_id: UUID, rule: Which = None, cursor: Cursor = None, limit: Limit = 50
) -> ChangePage:
    """Every change of the settings that concern a run, the newest first; those of its project too."""
    with reading(context.engine) as session:
        return history(session, place_of_run(session, run_id), "rule", rule, cursor, limit)


@router.get("/projects/{slug}/rules/{rule}", operation_id="read_project_rule")
def read_project_rule(context: ContextDep, slug: Slug, rule: Rule) -> RuleAnswer:
    """What counts for one rule in a project."""
    with reading(context.engine) as session:
        return _one(session, place_of_project(session, slug), known_rule(rule))


@router.get("/runs/{run_id}/rules/{rule}", operation_id="read_run_rule")
def read_run_rule(context: ContextDep, run_id: UUID, rule: Rule) -> RuleAnswer:
    """What counts for one rule in a run."""
    with reading(context.engine) as session:
        return _one(session, place_of_run(session, run_id), known_rule(rule))


@router.put("/projects/{slug}/rules/{rule}", operation_id="set_project_rule")
def set_project_rule(context: ContextDep, slug: Slug, rule: Rule, body: NewSetting) -> RuleAnswer:
    """Set a rule for every run of a project, in place of what the project had set. The same again changes nothing."""
    with writing(context.engine) as session:
        place = place_of_project(session, slug)
        answer, changed = _set(session, place, known_rule(rule), body)
    return _told(context, place, answer, changed=changed)


@router.put("/runs/{run_id}/rules/{rule}", operation_id="set_run_rule")
def set_run_rule(context: ContextDep, run_id: UUID, rule: Rule, body: NewSetting) -> RuleAnswer:
    """Set a rule for one run, in place of what was set for the run. The same again changes nothing."""
    with writing(context.engine) as session:
        place = place_of_run(session, run_id)
        answer, changed = _set(session, place, known_rule(rule), body)
    return _told(context, place, answer, changed=changed)


@router.delete("/projects/{slug}/rules/{rule}", operation_id="reset_project_rule")
def reset_project_rule(context: ContextDep, slug: Slug, rule: Rule, by: By, reason: Reason = "") -> RuleAnswer:
    """Take back what a project has set for a rule: the shipped settings count again."""
    with writing(context.engine) as session:
        place = place_of_project(session, slug)
        answer = _reset(session, place, known_rule(rule), by, reason)
    return _told(context, place, answer, changed=True)


@router.delete("/runs/{run_id}/rules/{rule}", operation_id="reset_run_rule")
def reset_run_rule(context: ContextDep, run_id: UUID, rule: Rule, by: By, reason: Reason = "") -> RuleAnswer:
    """Take back what was set for a rule of a run: the project's settings count again."""
    with writing(context.engine) as session:
        place = place_of_run(session, run_id)
        answer = _reset(session, place, known_rule(rule), by, reason)
    return _told(context, place, answer, changed=True)


def history(
    session: Session, place: Place, kind: str, subject: str | None, cursor: str | None, limit: int
) -> ChangePage:
    """Changes of one kind that concern a scope."""
    repository = SettingRepository(session)
    rows, following = repository.history(place.scope, kind=kind, subject=subject, cursor=cursor, limit=limit)
    runs = repository.names_of([row.run_id for row in rows if row.run_id is not None])
    return change_page(rows, {key: run.uuid for key, run in runs.items()}, following)


def _set(session: Session, place: Place, rule: str, body: NewSetting) -> tuple[RuleAnswer, bool]:
    wrong = body.wrong(rule)
    if wrong is not None:
        raise field_error(*wrong)
    repository = SettingRepository(session)
    repository.lock(place.scope)
    row = repository.one(place.scope, rule)
    values, now = body.values(), time.time()
    said = {**values, "set_by": body.by, "reason": body.reason}
    if row is not None and all(getattr(row, name) == value for name, value in said.items()):
        return _one(session, place, rule), False
    old = None if row is None else setting_body(row)
    if row is None:
        row = RuleSetting(project_id=place.scope.project_id, run_id=place.scope.run_id, rule=rule)
        session.add(row)
    for name, value in (said | {"set_at": now}).items():
        setattr(row, name, value)
    session.flush()
    repository.record(
        place.scope, "rule", rule, by=body.by, reason=body.reason, at=now, old=old, new=setting_body(row)
    )  # fmt: skip
    return _one(session, place, rule), True


def _reset(session: Session, place: Place, rule: str, by: str, reason: str) -> RuleAnswer:
    if "\x00" in by + reason:
        raise field_error("query", "holds a NUL character")
    repository = SettingRepository(session)
    repository.lock(place.scope)
    row = repository.one(place.scope, rule)
    if row is None:
        where = f"project {place.project}" if place.run is None else f"run {place.run.name}"
        raise NotFoundError(f"Nothing is set for {rule} in {where}.")
    session.delete(row)
    session.flush()
    old, now = setting_body(row), time.time()
    repository.record(place.scope, "rule", rule, by=by, reason=reason, at=now, old=old, new=None)
    return _one(session, place, rule)


def _told(context: Context, place: Place, answer: RuleAnswer, *, changed: bool) -> RuleAnswer:
    if changed:
        publish(context, place)
    return answer


def _listed(session: Session, place: Place) -> RuleList:
    rules = [*FAMILY_OF_RULE, *_limits_set(session, place)]
    return RuleList(project=place.project, run=place.run_id, items=_answers(session, place, rules))


def _limits_set(session: Session, place: Place) -> list[str]:
    """Limits beside a rule's own that were set here or in the project."""
    named = {row.rule for row in SettingRepository(session).in_force(place.scope)}
    return [limit for limit in LIMITS if limit in named]


def _one(session: Session, place: Place, rule: str) -> RuleAnswer:
    return _answers(session, place, [rule])[0]


def _answers(session: Session, place: Place, rules: list[str]) -> list[RuleAnswer]:
    rows = SettingRepository(session).in_force(place.scope)
    found = effective(rows, place.project)
    here = {row.rule: row for row in rows if row.run_id == place.scope.run_id}
    newest = (
        {}
        if place.scope.run_id is None
        else {row.rule: row for row in JudgementRepository(session).of_run(place.scope.run_id)}
    )
    return [
        rule_answer(
            rule,
            FAMILY_OF_RULE[LIMITS.get(rule, rule)],
            found.get(rule, Effective(rule)),
            here.get(rule),
            newest.get(rule),
        )
        for rule in rules
    ]
