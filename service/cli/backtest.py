"""`pacenote backtest`: what would have been said of a run, when, and why not earlier. Sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.opening import database_trouble, open_database, read_settings
from service.cli.output import JUDGED_NOT, fail, warn, watching

if TYPE_CHECKING:
    from service.backtests.timeline import Said, Timeline

EXAMPLE = "Example: pacenote backtest metrics.csv --reference olmo3-7b --map 'loss=train/ce_loss'"


def backtest(
    subject: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run's id or name, or a log as for replay.")],
    reference: Annotated[str | None, typer.Option(help="Reference to compare with; by default the run's own.")] = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", help="Only this rule. May be repeated.")] = None,
    every: Annotated[int | None, typer.Option(help="Steps between two looks; by default a 200th of the run.")] = None,
    stage: Annotated[str | None, typer.Option(help="Of the reference, for a log; by default the first.")] = None,
    tokens_per_step: Annotated[int | None, typer.Option(help="For a log; by default the reference's.")] = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", help="NAME=METRIC: what a name in a log means. May be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same judgements as JSON lines.")] = False,
    database_url: Annotated[
        str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")
    ] = None,
) -> None:
    """Judge a run as it grew, by the code that judges live, and print each change of an answer and each rule's last.

    A log is judged as it was written, with what a restart took back; a run of the database by its live points.
    Exit 0: no rule ever said yes; 1: a judgement said it is not the published run; 2: the input was refused.
    """
    from service.backtests.timeline import told
    from service.cli.backtesting import BacktestError, of_log, of_run
    from service.importers.rows import LogError

    if every is not None and every < 1:
        fail(f"--every must be 1 or more, it is {every}.")
    url = read_settings(database_url=database_url).database_url
    engine = open_database(url)
    try:
        with database_trouble(url):
            _check_rules(rule)
            if Path(subject).exists():
                timeline = of_log(engine, Path(subject), reference, stage, tokens_per_step, mapping or [])
            else:
                timeline = of_run(engine, subject, reference)
            with watching("judging …"):
                said = told(timeline, every, rule)
    except (BacktestError, LogError) as error:
        fail(str(error))
    finally:
        engine.dispose()
    if as_json:
        _print_json(said)
    else:
        _print(timeline, said)
    if any(one.judgement.state == "yes" for one in said):
        raise typer.Exit(JUDGED_NOT)


def _check_rules(rules: list[str] | None) -> None:
    from service.detect.engine import FAMILY_OF_RULE

    for name in rules or []:
        if name not in FAMILY_OF_RULE:
            fail(f"--rule: there is no rule {name}; there are {', '.join(FAMILY_OF_RULE)}.")


def _print_json(said: list[Said]) -> None:
    import json

    from service.judgements.bodies import to_body

    for one in said:
        typer.echo(json.dumps({"look": one.step, **to_body(one.judgement)}, ensure_ascii=False, allow_nan=False))


def _print(timeline: Timeline, said: list[Said]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    colour = {"yes": "bold red", "no": "green", "cannot tell": "yellow"}
    for note in timeline.notes:
        warn(note)
    console.print(Text(f"{timeline.title}: {len(timeline.looks):,} looks, to step {timeline.looks[-1].step:,}"))
    for one in (one for one in said if not one.last):
        judgement = one.judgement
        head = Text.assemble(f"step {one.step:,}  ", (judgement.rule, "bold"), ": ")
        if one.before is not None:
            head.append(f"{one.before.state} -> ")
        console.print(head.append(judgement.state, colour[judgement.state]).append(f". {judgement.summary}"))
        if judgement.state == "yes":
            for detail in [*_reasons(one), *_what_now(timeline, one)]:
                console.print(Text(f"    {detail}", "dim"))
    console.print(Text("At the end:"))
    for one in (one for one in said if one.last):
        judgement = one.judgement
        state = (judgement.state, colour[judgement.state])
        console.print(Text.assemble("  ", judgement.rule, ": ", state, f". {judgement.summary}"))


def _reasons(one: Said) -> list[str]:
    """Since when it was so, why it was not said earlier, and what speaks for which cause."""
    judgement = one.judgement
    made: list[str] = []
    if judgement.since_step is not None:
        low, high = judgement.since_step
        began = f"step {low:,}" if low == high else f"step {low:,} to {high:,}"
        made.append(f"began at {began}: said {max(one.step - high, 0):,} steps later")
    if one.before is not None:
        made.append(f"not earlier: at step {one.before_step:,} {_standing(one)}")
    made += [f"{cause.weight}: {cause.name}. {cause.because}" for cause in judgement.causes]
    return made


def _what_now(timeline: Timeline, one: Said) -> list[str]:
    from service.backtests.timeline import what_then

    found = what_then(timeline, one)
    return [] if found is None else [f"what now: {found.summary}"]


def _standing(one: Said) -> str:
    before = one.before
    assert before is not None
    if before.value is None or before.limit is None:
        return f'it said "{before.summary}"'
    unit = f" {before.unit}" if before.unit else ""
    return f'the value was {before.value:.4g}{unit} beside a limit of {before.limit:.4g}; it said "{before.summary}"'
