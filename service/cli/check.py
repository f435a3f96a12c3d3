"""`pacenote check`: a gate for CI. Does a run keep limits?"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

import typer

from service.cli.output import CANNOT_TELL, JUDGED_NOT, fail
from service.cli.reporting import DatabaseUrl, RunName, Stage, Url, source_of

EXAMPLE = "Example: pacenote check olmo3-7b/olmo3-7b-v7x --max-gap 0.02 --tasks ±0.005 --no-repeats"
MARKS = {"holds": "ok", "fails": "FAILS", "cannot tell": "CANNOT TELL"}


def check(
    run: RunName,
    max_gap: Annotated[
        str | None,
        typer.Option(metavar="NATS", help="How far the train loss's newest block may lie."),
    ] = None,
    heldout: Annotated[
        str | None, typer.Option(metavar="NATS", help="How far every held-out loss may lie at its newest evaluation.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="±ACCURACY", help="How far the mean of the tasks' accuracies may lie.")
    ] = None,
    no_repeats: Annotated[bool, typer.Option("--no-repeats", help="Rows must be shown not to repeat.")] = False,
    verdict: Annotated[
        Literal["matching", "consistent"] | None,
        typer.Option(help="The least verdict; by default consistent where nothing else is asked."),
    ] = None,
    at: Annotated[int | None, typer.Option(metavar="STEP", min=0, help="By default the run's newest step.")] = None,
    allow_cannot_tell: Annotated[
        bool, typer.Option("--allow-cannot-tell", help="Exit 0 where something cannot be told and nothing fails.")
    ] = False,
    format_: Annotated[Literal["text", "json"], typer.Option("--format", help="json: for machines.")] = "text",
    stage: Stage = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
) -> None:
    """Say of each limit whether it holds, with what was measured, and exit so that CI can go by it.

    A limit holds only where the whole 95 % interval lies within it, and fails only where it lies wholly beyond.
    Exit 0: all hold; 1: one fails; 2: wrong use; 4: none fails, but one cannot be told (0 with --allow-cannot-tell).
    """
    limits: dict[str, Any] = {
        "max_gap": _limit("--max-gap", max_gap),
        "heldout": _limit("--heldout", heldout),
        "tasks": _limit("--tasks", tasks),
        "no_repeats": no_repeats,
        "verdict": verdict,
        "at": at,
    }
    with source_of(run, stage, database_url, url) as source:
        answer = source.check(limits)
    if format_ == "json":
        typer.echo(json.dumps(answer, ensure_ascii=False))
    else:
        for one in answer["outcomes"]:
            summary = " ".join(str(one["summary"]).split())
            typer.echo(f"{MARKS[one['answer']]}: {one['check']}: {summary}")
    if answer["answer"] == "fails":
        raise typer.Exit(JUDGED_NOT)
    if answer["answer"] != "holds" and not allow_cannot_tell:
        raise typer.Exit(CANNOT_TELL)


def _limit(option: str, text: str | None) -> float | None:
    """`0.02`, `±0.02` and `+-0.02` are the same."""
    if text is None:
        return None
    try:
        value = float(text.strip().removeprefix("±").removeprefix("+-").removeprefix("+/-"))
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        fail(f"{option} {text!r}: write a number above 0, for example 0.005 or ±0.005.")
    return value
