"""Which setting of a rule counts: the run's over the project's over the shipped one, each part by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from service.database.models import RuleSetting as SettingRow
from service.detect.inputs import RuleSetting
from service.runs.fields import rfc3339


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a rule's settings as it was set: by whom, where and why. `until` is of a mute alone."""

    value: float | int | bool
    scope: str  # run | project
    source: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Effective:
    """What counts for one rule; None: as shipped."""

    rule: str
    tolerance: Part | None = None
    minimum_evidence: Part | None = None
    enabled: Part | None = None
    muted: Part | None = None

    @property
    def off(self) -> bool:
        """Whether the rule is not judged."""
        return self.enabled is not None and not self.enabled.value

    def silent(self, now: float) -> bool:
        """Whether the rule raises no alert at this time (unix seconds)."""
        return self.muted is not None and bool(self.muted.value) and now < (self.muted.until or float("inf"))

    def judged(self) -> RuleSetting:
        """What the rules look at."""
        tolerance, minimum = self.tolerance, self.minimum_evidence
        return RuleSetting(
            tolerance=None if tolerance is None else float(tolerance.value),
            tolerance_source=tolerance.source if tolerance else "",
            minimum=None if minimum is None else int(minimum.value),
            minimum_source=minimum.source if minimum else "",
            off=self.enabled.source if self.enabled is not None and self.off else "",
        )


def effective(rows: Iterable[SettingRow], project: str) -> dict[str, Effective]:
    """What counts of the settings of one run and its project (slug), for each rule that has any."""
    by_rule: dict[str, list[SettingRow]] = {}
    for row in rows:
        by_rule.setdefault(row.rule, []).append(row)
    return {rule: _of_rule(rule, found, project) for rule, found in by_rule.items()}


def settings_of(found: Mapping[str, Effective]) -> dict[str, RuleSetting]:
    """The part of the settings that changes answers."""
    return {rule: judged for rule, one in found.items() if (judged := one.judged()) != RuleSetting()}


def silenced(found: Mapping[str, Effective], now: float) -> dict[str, str]:
    """Rules that raise no alert now, with the reason: muted ones, and those turned off."""
    reasons: dict[str, str] = {}
    for rule, one in found.items():
        if one.enabled is not None and one.off:
            reasons[rule] = f"turned off, {one.enabled.source}"
        elif one.muted is not None and one.silent(now):
            until = f" until {rfc3339(one.muted.until)}" if one.muted.until is not None else ""
            reasons[rule] = f"muted{until}, {one.muted.source}"
    return reasons


def tried(found: Mapping[str, Effective], rule: str, part: RuleSetting) -> dict[str, RuleSetting]:
    """What would count if `part` were set for one rule of the run: its parts go before those in force."""
    now = found.get(rule, Effective(rule)).judged()
    merged = RuleSetting(
        tolerance=now.tolerance if part.tolerance is None else part.tolerance,
        tolerance_source=now.tolerance_source if part.tolerance is None else part.tolerance_source,
        minimum=now.minimum if part.minimum is None else part.minimum,
        minimum_source=now.minimum_source if part.minimum is None else part.minimum_source,
        off=part.off or now.off,
    )
    return settings_of(found) | {rule: merged}


def source_of(row: SettingRow, project: str) -> str:
    """Who set it, where and why: "set by Ann for this run: other shuffle"."""
    where = "this run" if row.run_id is not None else f"project {project}"
    return f"set by {row.set_by} for {where}" + (f": {row.reason}" if row.reason else "")


def _of_rule(rule: str, rows: Sequence[SettingRow], project: str) -> Effective:
    ordered = sorted(rows, key=lambda row: row.run_id is None)  # the run's first

    def part(name: str) -> Part | None:
        for row in ordered:
            value: float | int | bool | None = getattr(row, name)
            if value is not None:
                until = row.muted_until if name == "muted" else None
                return Part(value, "project" if row.run_id is None else "run", source_of(row, project), until)
        return None

    return Effective(rule, part("tolerance"), part("minimum_evidence"), part("enabled"), part("muted"))
