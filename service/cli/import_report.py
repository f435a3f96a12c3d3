"""Prints what a log holds before it is imported, and what became of every row after."""

from __future__ import annotations

import typer

from service.cli.output import warn
from service.importers.job import Preview, Report
from service.importers.plan import RunPlan

SHOWN = 12


def print_preview(preview: Preview) -> None:
    """Format and reason, then per run what its names mean, its steps, and where the log goes back."""
    group = preview.group
    files = group.place + (f" and {len(group.paths) - 1:,} more files" if len(group.paths) > 1 else "")
    if group.origin:
        files += f" ({group.size() / 1e6:,.1f} MB)"
    typer.echo(f"{files}: {group.format.title}, known by {group.because}")
    for note in preview.account.notes:
        typer.echo(f"  {note}")
    for place, (name, run) in enumerate(preview.plan.runs.items()):
        if place == SHOWN:
            typer.echo(f"  and {len(preview.plan.runs) - SHOWN:,} more runs")
            break
        _print_run(name, run)
    for reason, count in preview.account.refused.most_common():
        warn(f"{count:,} not taken: {reason} (first: {preview.account.places[reason]})")


def _print_run(name: str, run: RunPlan) -> None:
    if name:
        typer.echo(f"  run {name}")
    metrics = run.found.metrics
    for place, (metric, target) in enumerate(run.known.items()):
        if place == 2 * SHOWN:
            typer.echo(f"  and {len(run.known) - place:,} more known names")
            break
        points = sum(found.count for found in metrics[metric])
        first = min(found.first_step for found in metrics[metric]) + target.shift
        last = max(found.last_step for found in metrics[metric]) + target.shift
        shift = f", steps + {target.shift}" if target.shift else ""
        bad = sum(found.non_finite for found in metrics[metric])
        finite = f", {bad:,} not finite" if bad else ""
        many = f"{points:,} point{'' if points == 1 else 's'}"
        typer.echo(f"  {metric} -> {target.metric} ({many}, step {first:,} to {last:,}{shift}{finite})")
    raw = run.raw
    if raw:
        shown = ", ".join(raw[:SHOWN]) + (f" and {len(raw) - SHOWN} more" if len(raw) > SHOWN else "")
        typer.echo(f"  not known, kept under their own names and not judged: {shown}")
    for note in run.notes:
        warn(note)
    back = sum(len(cuts) for cuts in run.cuts.values())
    if back:
        typer.echo(f"  the steps go back {back:,} times: each begins a segment, and the later one counts")


def print_report(report: Report) -> None:
    """The table of rows: read = stored + superseded + refused."""
    refused = sum(report.refused.values())
    typer.echo(
        f"Rows read {report.read:,} = stored {report.stored:,} + superseded {report.superseded:,} + refused {refused:,}"
    )
    for reason, count in report.refused.most_common():
        place = f" (first: {report.places[reason]})" if reason in report.places else ""
        typer.echo(f"  refused {count:,}: {reason}{place}")
    for sentence in report.conversions:
        typer.echo(f"  converted: {sentence}")
    if report.copies:
        typer.echo(f"  {report.copies:,} values are kept as they were too, beside their conversion")
    for name, (goal, outcome) in list(report.runs.items())[:SHOWN]:
        state = "was imported before; nothing new" if outcome.already else f"{len(outcome.segments)} segments"
        typer.echo(f"Run {name} ({goal.run}): {state}")
    if len(report.runs) > SHOWN:
        typer.echo(f"and {len(report.runs) - SHOWN:,} more runs")
