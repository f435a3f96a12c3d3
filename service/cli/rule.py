"""`pacenote rule`: settings of rules per project and run. A running service judges anew at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.judging import By, Run, Url, given_time, judging_context, moment_in_words, run_uuid, speaker
from service.cli.output import fail, make_table, plain_console, watching

if TYPE_CHECKING:
    from service.rules.previewing import PreviewAnswer
    from service.rules.schemas import PartAnswer, RuleAnswer

EXAMPLE_LIST = "Example: pacenote rule list olmo3-7b-v7x"
EXAMPLE_SHOW = "Example: pacenote rule show olmo3-7b-v7x train_drift"
EXAMPLE_SET = "Example: pacenote rule set olmo3-7b-v7x train_drift --tolerance 0.02 --reason 'no global shuffle'"
EXAMPLE_RESET = "Example: pacenote rule reset olmo3-7b-v7x train_drift"
EXAMPLE_HISTORY = "Example: pacenote rule history olmo3-7b-v7x"
EXAMPLE_TRY = "Example: pacenote rule try olmo3-7b-v7x train_drift --tolerance 0.02"

Rule = Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule; `pacenote rule list` has them.")]
Subject = Annotated[str, typer.Argument(metavar="RUN|PROJECT", help="A run's id or name; a project's with --project.")]
Project = Annotated[bool, typer.Option("--project", help="All runs of a project, instead of one run.")]
Tolerance = Annotated[float | None, typer.Option(help="How far a healthy run may lie, in the rule's unit.")]
Unit = Annotated[str | None, typer.Option(help="The rule's unit, to be safe: another one is refused.")]
Minimum = Annotated[int | None, typer.Option(help="Observations an answer must rest on.")]
Enabled = Annotated[bool | None, typer.Option("--enabled/--disabled", help="Whether the rule is judged.")]


def show_list(subject: Subject, project: Project = False, database_url: Url = None) -> None:
    """List every rule with what counts for it and where that was set."""
    from service.rules.endpoints import list_project_rules, list_run_rules

    with judging_context(database_url) as context:
        uuid = None if project else run_uuid(context, subject)
        found = list_project_rules(context, subject) if uuid is None else list_run_rules(context, uuid)
    table = make_table("rule", "family", "answer", "limit", "settings")
    for one in found.items:
        limit = "" if one.limit is None else f"{one.limit:.4g} ({one.limit_source})"
        table.add_row(one.rule, one.family, one.state or "", limit, "; ".join(_parts(one)) or "as shipped")
    plain_console().print(table)


def show(subject: Subject, rule: Rule, project: Project = False, database_url: Url = None) -> None:
    """Show what counts for one rule."""
    from service.rules.endpoints import read_project_rule, read_run_rule

    with judging_context(database_url) as context:
        if project:
            found = read_project_rule(context, subject, rule)
        else:
            found = read_run_rule(context, run_uuid(context, subject), rule)
    _print(found)


def set_(
    subject: Subject,
    rule: Rule,
    project: Project = False,
    tolerance: Tolerance = None,
    unit: Unit = None,
    minimum_evidence: Minimum = None,
    enabled: Enabled = None,
    muted: Annotated[
        bool | None, typer.Option("--mute/--unmute", help="Judged and shown, but raises no alert.")
    ] = None,
    muted_until: Annotated[
        str | None, typer.Option(help="End of the mute, RFC 3339 such as 2026-12-01T08:00:00Z; else for ever.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; it is shown beside the limit and kept.")] = "",
    by: By = None,
    database_url: Url = None,
) -> None:
    """Set parts of a rule's settings; what is not named stays as it was set."""
    from service.rules.endpoints import read_project_rule, read_run_rule, set_project_rule, set_run_rule
    from service.rules.schemas import NewSetting

    said: dict[str, Any] = {"tolerance": tolerance, "minimum_evidence": minimum_evidence, "enabled": enabled}
    said |= {"muted": True if muted is None and muted_until else muted}
    said = {name: value for name, value in said.items() if value is not None}
    if not said:
        fail("Say what to set: --tolerance, --minimum-evidence, --disabled, --mute, … (see --help)")
    if not reason.strip():
        fail("Say why: --reason 'no global shuffle'. It is shown beside the limit and kept.")
    if said.get("muted") is not None:
        said["muted_until"] = given_time("--muted-until", muted_until)
    with judging_context(database_url) as context:
        uuid = None if project else run_uuid(context, subject)
        now = read_project_rule(context, subject, rule) if uuid is None else read_run_rule(context, uuid, rule)
        kept = {name: (now.here or {}).get(name) for name in ("tolerance", "minimum_evidence", "enabled", "muted",
                                                              "muted_until")}  # fmt: skip
        body = NewSetting.model_validate({**kept, **said, "unit": unit, "by": speaker(by), "reason": reason})
        if uuid is None:
            found = set_project_rule(context, subject, rule, body)
        else:
            found = set_run_rule(context, uuid, rule, body)
    _print(found)


def reset(
    subject: Subject,
    rule: Rule,
    project: Project = False,
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    by: By = None,
    database_url: Url = None,
) -> None:
    """Take back what a run or a project has set for a rule."""
    from service.rules.endpoints import reset_project_rule, reset_run_rule

    with judging_context(database_url) as context:
        if project:
            found = reset_project_rule(context, subject, rule, speaker(by), reason)
        else:
            found = reset_run_rule(context, run_uuid(context, subject), rule, speaker(by), reason)
    _print(found)


def history(
    subject: Subject,
    project: Project = False,
    rule: Annotated[str | None, typer.Option(help="Only this rule.")] = None,
    database_url: Url = None,
) -> None:
    """Every change of settings, the newest first: who, when, what it was, what it became, why."""
    from service.rules.endpoints import list_project_rule_changes, list_run_rule_changes

    with judging_context(database_url) as context:
        if project:
            found = list_project_rule_changes(context, subject, rule, None, 500)
        else:
            found = list_run_rule_changes(context, run_uuid(context, subject), rule, None, 500)
    table = make_table("when", "who", "rule", "scope", "was", "became", "why")
    for change in found.items:
        scope = "project" if change.run is None else "run"
        table.add_row(
            moment_in_words(change.at), change.by, change.subject, scope, _set_in_words(change.old),
            _set_in_words(change.new), change.reason,
        )  # fmt: skip
    plain_console().print(table)


def try_(
    run: Run,
    rule: Rule,
    tolerance: Tolerance = None,
    unit: Unit = None,
    minimum_evidence: Minimum = None,
    enabled: Enabled = None,
    every: Annotated[int | None, typer.Option(min=1, help="Steps between looks; by default a 200th.")] = None,
    database_url: Url = None,
) -> None:
    """Say what a setting would have raised on the stored points, and when, beside what is raised now. Saves nothing."""
    from service.rules.previewing import TriedSetting, preview_run_rule

    with judging_context(database_url) as context:
        uuid = run_uuid(context, run)
        body = TriedSetting(
            rule=rule, tolerance=tolerance, unit=unit, minimum_evidence=minimum_evidence, enabled=enabled, every=every
        )
        with watching("judging …"):
            found = preview_run_rule(context, uuid, body)
    print_preview(found)


def print_preview(found: PreviewAnswer) -> None:
    """What would have been otherwise, and what is said on both sides."""
    for line in found.changes:
        typer.echo(line)
    for name, side in (("before", found.before), ("after", found.after)):
        typer.echo(f"{name}:" + (" no rule says yes" if not side else ""))
        for one in side:
            end = "" if one.to_step is None else f" to {one.to_step:,}"
            typer.echo(f"  {one.rule}: step {one.from_step:,}{end}. {one.judgement['summary']}")


def _print(found: RuleAnswer) -> None:
    unit = f", tolerance in {found.unit}" if found.unit else ", no tolerance of its own"
    typer.echo(f"{found.rule} ({found.family}{unit})")
    for line in _parts(found) or ["as shipped"]:
        typer.echo(f"  {line}")
    if found.limit is not None:
        typer.echo(f"  judged last: {found.state}, limit {found.limit:.4g} ({found.limit_source})")


def _parts(found: RuleAnswer) -> list[str]:
    made: list[str] = []
    if found.tolerance is not None:
        made.append(f"tolerance {found.tolerance.value:g} {found.unit}, {found.tolerance.source}")
    if found.minimum_evidence is not None:
        made.append(f"at least {found.minimum_evidence.value} observations, {found.minimum_evidence.source}")
    if found.enabled is not None:
        made.append(f"{'judged' if found.enabled.value else 'turned off'}, {found.enabled.source}")
    if found.muted is not None:
        made.append(f"{_muted(found.muted)}, {found.muted.source}")
    return made


def _muted(part: PartAnswer) -> str:
    if not part.value:
        return "not muted"
    return "muted for ever" if part.until is None else f"muted until {moment_in_words(part.until)}"


def _set_in_words(values: dict[str, Any] | None) -> str:
    if values is None:
        return "as shipped"
    names = ("tolerance", "minimum_evidence", "enabled", "muted", "muted_until")
    return ", ".join(f"{name} {values[name]}" for name in names if values.get(name) is not None)
