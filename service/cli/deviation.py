"""`pacenote deviation`: known differences of a run from its reference. A running service judges anew at once."""

from __future__ import annotations

from typing import Annotated, Any, cast
from uuid import UUID

import typer

from service.cli.judging import By, Run, Url, given_time, judging_context, moment_in_words, run_uuid, speaker
from service.cli.output import fail, make_table, plain_console, watching

EXAMPLE_ADD = (
    "Example: pacenote deviation add olmo3-7b-v7x 'newer web crawl' --item data --budget train/ce_loss=-0.02 "
    "--until-step 200000"
)
EXAMPLE_LIST = "Example: pacenote deviation list olmo3-7b-v7x"
EXAMPLE_TRY = (
    "Example: pacenote deviation try olmo3-7b-v7x 'newer web crawl' --item data --budget train/ce_loss=-0.02 "
    "--until-step 200000"
)
EXAMPLE_END = "Example: pacenote deviation end olmo3-7b-v7x 0b6f0f9a-64b9-4c2c-9c6c-8a2a3a0c51d5"


def add(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What differs, in words.")],
    item: Annotated[str, typer.Option(help="Part of the recipe: data, order, tokenizer, loss, optimizer, schedule, "
                                           "init, precision, evaluation or other.")],
    budget: Annotated[list[str], typer.Option(help="METRIC=±VALUE: how far the run may lie from the reference because "
                                                   "of it, in nats or accuracy. May be repeated.")],
    from_step: Annotated[int, typer.Option(help="Where it begins.")] = 0,
    from_tokens: Annotated[float | None, typer.Option(help="Where it begins, on the project's axis.")] = None,
    until_step: Annotated[int | None, typer.Option(help="Last step at which it explains anything.")] = None,
    until_tokens: Annotated[float | None, typer.Option(help="The same in tokens.")] = None,
    until: Annotated[str | None, typer.Option(help="The same as a time, RFC 3339.")] = None,
    by: By = None,
    database_url: Url = None,
) -> None:  # fmt: skip
    """Declare a known difference with a budget and an end."""
    from service.deviations.endpoints import declare_deviation
    from service.deviations.schemas import NewDeviation

    with judging_context(database_url) as context:
        uuid = run_uuid(context, run)
        body = NewDeviation(
            text=text, item=cast("Any", item), budgets=_budgets(budget), from_step=from_step, from_tokens=from_tokens,
            end_step=until_step, end_tokens=until_tokens, end_at=given_time("--until", until), by=speaker(by),
        )  # fmt: skip
        made = declare_deviation(context, uuid, body)
    typer.echo(f"Declared as {made.id}; {made.state} at the run's newest step.")


def try_(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What differs, in words.")],
    item: Annotated[str, typer.Option(help="Part of the recipe, as for add.")],
    budget: Annotated[list[str], typer.Option(help="METRIC=±VALUE, as for add. May be repeated.")],
    from_step: Annotated[int, typer.Option(help="Where it begins.")] = 0,
    until_step: Annotated[int | None, typer.Option(help="Last step at which it explains anything.")] = None,
    until_tokens: Annotated[float | None, typer.Option(help="The same in tokens.")] = None,
    every: Annotated[int | None, typer.Option(min=1, help="Steps between looks; by default a 200th.")] = None,
    database_url: Url = None,
) -> None:
    """Say what such a deviation would have explained away on the stored points, and what not. Saves nothing."""
    from service.cli.rule import print_preview
    from service.deviations.schemas import NewDeviation
    from service.deviations.trying import preview_deviation

    with judging_context(database_url) as context:
        uuid = run_uuid(context, run)
        body = NewDeviation(
            text=text, item=cast("Any", item), budgets=_budgets(budget), from_step=from_step, end_step=until_step,
            end_tokens=until_tokens, by="preview",
        )  # fmt: skip
        with watching("judging …"):
            found = preview_deviation(context, uuid, body, every)
    print_preview(found)


def show_list(run: Run, database_url: Url = None) -> None:
    """List the declared deviations of a run, and every change of them."""
    from service.deviations.endpoints import list_deviation_changes, list_deviations

    with judging_context(database_url) as context:
        uuid = run_uuid(context, run)
        found = list_deviations(context, uuid).items
        changes = list_deviation_changes(context, uuid, None, None, 500).items
    table = make_table("id", "what", "recipe", "budgets", "from", "to", "state", "by")
    for one in found:
        budgets = ", ".join(f"{metric} {budget:+g}" for metric, budget in one.budgets.items())
        start = f"step {one.from_step:,}" + (f", {one.from_tokens:,.0f} tokens" if one.from_tokens is not None else "")
        ends = [f"step {one.end_step:,}"] if one.end_step is not None else []
        ends += [f"{one.end_tokens:,.0f} tokens"] if one.end_tokens is not None else []
        ends += [moment_in_words(one.end_at)] if one.end_at is not None else []
        table.add_row(str(one.id), one.text, one.item, budgets, start, ", ".join(ends), one.state, one.by)
    console = plain_console()
    console.print(table)
    for change in changes:
        what = "declared" if change.old is None else f"ended at step {(change.new or {}).get('end_step')}"
        why = f": {change.reason}" if change.old is not None and change.reason else ""
        console.print(f"{moment_in_words(change.at)}  {change.subject} {what} by {change.by}{why}")


def end(
    run: Run,
    deviation: Annotated[str, typer.Argument(metavar="ID", help="Of the deviation, as listed.")],
    at_step: Annotated[int | None, typer.Option(help="Last step it counts; by default the run's newest.")] = None,
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    by: By = None,
    database_url: Url = None,
) -> None:
    """End a deviation: from the next step on it explains nothing."""
    from service.deviations.endpoints import end_deviation
    from service.deviations.schemas import DeviationEnd

    try:
        uuid = UUID(deviation)
    except ValueError:
        fail(f"{deviation} is no id of a deviation; `pacenote deviation list {run}` shows them.")
    with judging_context(database_url) as context:
        body = DeviationEnd(end_step=at_step, by=speaker(by), reason=reason)
        made = end_deviation(context, run_uuid(context, run), uuid, body)
    typer.echo(f"“{made.text}” ends at step {made.end_step:,}.")


def _budgets(entries: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for entry in entries:
        metric, equals, value = entry.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            equals = ""
        else:
            found[metric] = number
        if not equals or not metric:
            fail(f"--budget {entry!r}: write METRIC=VALUE with a sign, for example train/ce_loss=-0.02.")
    return found
