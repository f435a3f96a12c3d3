"""What the settings pages show: channels, and rules with what counts for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from service.channels.endpoints import list_channels
from service.channels.kinds import KINDS
from service.channels.schemas import ChannelAnswer
from service.context import Context
from service.rules.endpoints import (
    list_project_rule_changes,
    list_project_rules,
    list_run_rule_changes,
    list_run_rules,
)
from service.rules.schemas import ChangeOfJudging, PartAnswer, RuleAnswer, RuleList
from service.runs.endpoints import list_projects, read_run
from service.runs.fields import utc_time
from service.runs.schemas import ProjectAnswer
from web import formatting

SHOWN = ("tolerance", "minimum_evidence", "enabled", "muted", "muted_until")


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """Channels, the kinds there are, and projects."""

    channels: Sequence[ChannelAnswer]
    kinds: Sequence[str]
    projects: Sequence[ProjectAnswer]


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One rule: what counts for it, each part in words with its source, and what is set right here."""

    rule: str
    family: str
    unit: str
    state: str | None
    tolerance: str
    source: str
    parts: Sequence[str]
    here: bool


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One change of a setting, in words."""

    at: float
    rule: str
    by: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class RulesPage:
    """The rules of a project, or of a run: then `uuid` and `name` are its own. Forms go to `action` + what to do +
    `query`."""

    project: str
    uuid: UUID | None
    name: str
    action: str
    query: str
    rules: Sequence[RuleLine]
    changes: Sequence[ChangeLine]

    @property
    def home(self) -> str:
        """Where the page itself is."""
        return f"/settings/runs/{self.uuid}" if self.uuid else f"/settings/project{self.query}"


def settings_page(context: Context) -> SettingsPage:
    """Channels and projects."""
    return SettingsPage(list_channels(context).items, sorted(KINDS), list_projects(context).items)


def project_settings(context: Context, slug: str) -> RulesPage:
    """The rules of a project.

    Raises:
        NotFoundError: there is no such project.
    """
    rules = list_project_rules(context, slug)
    changes = list_project_rule_changes(context, slug, limit=50).items
    return RulesPage(
        slug, None, slug, "/settings/project/rules", f"?{urlencode({'name': slug})}", _lines(rules), _changes(changes)
    )


def run_settings(context: Context, uuid: UUID) -> RulesPage:
    """The rules of a run.

    Raises:
        NotFoundError: there is no such run.
    """
    rules, run = list_run_rules(context, uuid), read_run(context, uuid)
    changes = list_run_rule_changes(context, uuid, limit=50).items
    return RulesPage(run.project, uuid, run.name, f"/settings/runs/{uuid}/rules", "", _lines(rules), _changes(changes))


def _lines(rules: RuleList) -> list[RuleLine]:
    return [_line(rule) for rule in rules.items]


def _line(rule: RuleAnswer) -> RuleLine:
    parts = [
        _part("at least {} observations", rule.minimum_evidence),
        _part("off" if rule.enabled is not None and not rule.enabled.value else "on", rule.enabled),
        _part("muted" if rule.muted is not None and rule.muted.value else "not muted", rule.muted),
    ]
    unit = rule.unit or ""
    if rule.tolerance is not None:
        tolerance, source = f"{formatting.number(float(rule.tolerance.value))} {unit}", rule.tolerance.source
    elif rule.limit is not None:
        tolerance, source = formatting.in_unit(rule.limit, unit, sign=False), rule.limit_source or ""
    else:
        tolerance, source = formatting.NOTHING, ""
    return RuleLine(
        rule=rule.rule,
        family=rule.family,
        unit=unit,
        state=rule.state,
        tolerance=tolerance,
        source=source,
        parts=[part for part in parts if part],
        here=rule.here is not None,
    )


def _part(words: str, part: PartAnswer | None) -> str:
    if part is None:
        return ""
    until = "" if part.until is None else f" until {utc_time(part.until):%Y-%m-%d %H:%M} UTC"
    return f"{words.format(part.value)}{until}: {part.source}"


def _changes(changes: Sequence[ChangeOfJudging]) -> list[ChangeLine]:
    return [ChangeLine(c.at, c.subject, c.by, c.reason, f"{_said(c.old)} → {_said(c.new)}") for c in changes]


def _said(body: Mapping[str, Any] | None) -> str:
    if body is None:
        return "as shipped"
    named = [f"{name.replace('_', ' ')} {body[name]}" for name in SHOWN if body.get(name) is not None]
    return ", ".join(named) or "nothing"
