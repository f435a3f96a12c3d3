"""What the API says about settings of rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from service.database.models import JudgementRow, JudgingChange
from service.database.models import RuleSetting as SettingRow
from service.detect.settings import LIMITS, UNITS
from service.rules.effective import Effective, Part
from service.runs.fields import Number, Time, rfc3339

HIGHEST_SHARE = {"repeated_rows": 0.1, "repeated_text": 0.8}  # beyond it no repeats could be told from natural ones


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("holds a NUL character")
    return text


Words = Annotated[str, AfterValidator(_storable)]
Who = Annotated[Words, Field(min_length=1, max_length=256, description="Who says so.")]


class NewSetting(BaseModel):
    """All that is set for a rule in one scope; null leaves it to the next wider one.

    `tolerance` is in `unit`, the rule's own; `minimum_evidence` counts observations (a judgement's `n`). A muted rule
    is judged and shown, and raises no alert, until `muted_until` or for ever."""

    model_config = ConfigDict(extra="forbid")

    tolerance: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    unit: Annotated[str, Field(max_length=32)] | None = None
    minimum_evidence: Annotated[int, Field(ge=1, le=2**53 - 1)] | None = None
    enabled: bool | None = None
    muted: bool | None = None
    muted_until: AwareDatetime | None = None
    by: Who
    reason: Words = Field(min_length=1, max_length=4000)

    def wrong(self, rule: str) -> tuple[str, str] | None:
        """The field that does not fit this rule, and why."""
        unit = unit_of(rule)
        if rule in LIMITS and self.values() != dict.fromkeys(PARTS) | {"tolerance": self.tolerance}:
            return "body", f"{rule} is a limit of {LIMITS[rule]} and has a tolerance alone; set the rest there"
        if self.tolerance is not None:
            if unit is None:
                having = ", ".join(f"{name} ({unit_of(name)})" for name in (*UNITS, *LIMITS))
                return "tolerance", f"{rule} has no tolerance of its own; these have: {having}"
            if self.unit is not None and self.unit != unit:
                return "unit", f"the tolerance of {rule} is in {unit}, not in {self.unit}"
            highest = 1.0 if unit == "accuracy" else HIGHEST_SHARE.get(rule, math.inf)
            if self.tolerance > highest:
                return "tolerance", f"that of {rule} is at most {highest:g} {unit}, not {self.tolerance:g}"
        if self.muted_until is not None and not self.muted:
            return "muted_until", 'goes with "muted": true'
        if self.values() == dict.fromkeys(PARTS):
            return "body", "sets nothing; DELETE takes a setting back"
        return None

    def values(self) -> dict[str, Any]:
        """The columns of a setting."""
        until = None if self.muted_until is None else self.muted_until.timestamp()
        return {**{name: getattr(self, name) for name in PARTS if name != "muted_until"}, "muted_until": until}


def unit_of(rule: str) -> str | None:
    """Of a rule's own tolerance, or of a limit beside it."""
    return UNITS.get(LIMITS.get(rule, rule))


PARTS = ("tolerance", "minimum_evidence", "enabled", "muted", "muted_until")


class PartAnswer(BaseModel):
    """One part of what counts: its value, the scope it was set in (run, project) and the source in words."""

    value: float | int | bool
    scope: str
    source: str
    until: Time | None = None


class RuleAnswer(BaseModel):
    """A rule and what counts for it. `unit` is that of its tolerance, null where it has none of its own.

    A part is null where the shipped value counts. `here` is what was set in exactly this scope. Of a judged run,
    `state`, `limit` and `limit_source` are those of the newest answer."""

    rule: str
    family: str
    unit: str | None
    tolerance: PartAnswer | None
    minimum_evidence: PartAnswer | None
    enabled: PartAnswer | None
    muted: PartAnswer | None
    here: dict[str, Any] | None
    state: str | None = None
    limit: Number | None = None
    limit_source: str | None = None


class RuleList(BaseModel):
    """Every rule of a scope, in the order in which they are judged."""

    project: str
    run: UUID | None
    items: list[RuleAnswer]


class ChangeOfJudging(BaseModel):
    """One change: who, when, why; `old` and `new` are null where nothing was set. `run` null: the whole project."""

    number: int
    subject: str
    run: UUID | None
    at: Time
    by: str
    reason: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None


class ChangePage(BaseModel):
    """Changes, the newest first; `next_cursor` is null on the last page."""

    items: list[ChangeOfJudging]
    next_cursor: str | None


def part_answer(part: Part | None) -> PartAnswer | None:
    """A part as the API gives it."""
    return (
        None if part is None else PartAnswer(value=part.value, scope=part.scope, source=part.source, until=part.until)
    )


def setting_body(row: SettingRow) -> dict[str, Any]:
    """What a scope has set for a rule, in JSON types."""
    until = None if row.muted_until is None else rfc3339(row.muted_until)
    return {
        "tolerance": row.tolerance,
        "minimum_evidence": row.minimum_evidence,
        "enabled": row.enabled,
        "muted": row.muted,
        "muted_until": until,
        "by": row.set_by,
        "reason": row.reason,
        "at": rfc3339(row.set_at),
    }


def rule_answer(
    rule: str, family: str, found: Effective, here: SettingRow | None, newest: JudgementRow | None
) -> RuleAnswer:
    """A rule as the API gives it."""
    body: Mapping[str, Any] = newest.body if newest is not None else {}
    return RuleAnswer(
        rule=rule,
        family=family,
        unit=unit_of(rule),
        tolerance=part_answer(found.tolerance),
        minimum_evidence=part_answer(found.minimum_evidence),
        enabled=part_answer(found.enabled),
        muted=part_answer(found.muted),
        here=None if here is None else setting_body(here),
        state=newest.state if newest is not None else None,
        limit=body.get("limit") if isinstance(body.get("limit"), int | float) else None,
        limit_source=body.get("limit_source") or None,
    )


def change_page(rows: Sequence[JudgingChange], runs: Mapping[int, UUID], following: str | None) -> ChangePage:
    """A page of changes; `runs` maps keys to public ids."""
    items = [
        ChangeOfJudging(
            number=row.id,
            subject=row.subject,
            run=None if row.run_id is None else runs.get(row.run_id),
            at=row.at,
            by=row.by,
            reason=row.reason,
            old=row.old,
            new=row.new,
        )
        for row in rows
    ]
    return ChangePage(items=items, next_cursor=following)
