"""`pacenote replay`: sends a recorded log through HTTP as a live run, and says what is judged of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.output import JUDGED_NOT, fail, interactive, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from service.cli.replaying import Recording

EXAMPLE = "Example: pacenote replay metrics.csv --reference olmo3-7b --map 'loss=train/ce_loss'"


def replay(
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSON lines or a printed log; gzip and zstd too.")],
    reference: Annotated[str, typer.Option(help="Reference to compare with.")],
    project: Annotated[str | None, typer.Option(help="By default the reference's name.")] = None,
    run: Annotated[str | None, typer.Option(help="Name of the run; by default the file's.")] = None,
    stage: Annotated[str | None, typer.Option(help="By default the reference's first stage.")] = None,
    tokens_per_step: Annotated[
        int | None, typer.Option(min=1, help="By default that of the reference's stage.")
    ] = None,
    speed: Annotated[
        float | None, typer.Option(help="Logged steps a second; by default as fast as they are taken.")
    ] = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", help="NAME=METRIC: what a name in the log means. May be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and show what would be sent; send nothing.")] = False,
    url: Annotated[str, typer.Option(envvar="PACENOTE_URL", help="The service.")] = "http://127.0.0.1:8350",
    wait: Annotated[float, typer.Option(help="Seconds to wait for the judgement.")] = 120.0,
) -> None:
    """Send a recorded log as a live run, wait until it is judged, and print the verdict and every judgement.

    Exit 0: no rule says yes; 1: a judgement says it is not the published run; 2: the log or the service refused.
    """
    from service.importers.rows import LogError

    try:
        recording = _read(file, chosen_names(mapping or []))
    except LogError as error:
        fail(str(error))
    _describe(recording)
    if dry_run:
        return
    if speed is not None and not speed > 0:
        fail(f"--speed must be above 0, it is {speed:g}.")
    from service.cli.replaying import Replayer, ReplayError
    from service.cli.verdict import print_verdict

    try:
        with Replayer(url, reference, stage) as replayer:
            given = tokens_per_step or replayer.tokens_per_step
            address = replayer.send(
                recording, project or reference, run or file.name.split(".")[0], given, speed, show=interactive()
            )
            typer.echo(f"The run is at {address}")
            verdict, judgements = replayer.judged(wait)
            what_now = replayer.what_now()
    except ReplayError as error:
        fail(str(error))
    print_verdict(verdict, judgements, what_now)
    if any(judgement["state"] == "yes" for judgement in judgements):
        raise typer.Exit(JUDGED_NOT)


def chosen_names(mapping: list[str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for entry in mapping:
        name, equals, metric = entry.rpartition("=")
        if not equals or not name or not metric:
            fail(f"--map {entry!r}: write NAME=METRIC, for example --map 'loss=train/ce_loss'.")
        if metric in chosen.values():
            fail(f"--map: two names cannot both mean {metric}.")
        chosen[name] = metric
    return chosen


def _read(file: Path, chosen: Mapping[str, str]) -> Recording:
    from service.cli.replaying import read_recording

    return read_recording(file, chosen)


def _describe(recording: Recording) -> None:
    typer.echo(f"{recording.file}: {recording.format.replace('_', ' ')}, known by {recording.because}")
    counts = recording.counts
    for name, target in recording.naming.known.items():
        shift = f", steps + {target.shift}" if target.shift else ""
        typer.echo(f"  {name} -> {target.metric} ({counts.get(target.metric, 0):,} points{shift})")
    if recording.naming.unknown:
        typer.echo(f"  not sent: {', '.join(recording.naming.unknown[:12])}")
    account = recording.account
    if account.skipped:
        first = f"the first is line {account.first_skipped}"
        warn(f"{account.skipped:,} of {account.lines:,} lines hold nothing known, {first}")
    if account.truncated:
        warn("The last line is cut off; what of it is not whole was left out")
    if len(recording.attempts) > 1:
        starts = ", ".join(f"{attempt.start_step:,}" for attempt in recording.attempts[1:6])
        typer.echo(f"  the training went back {len(recording.attempts) - 1} times, to step {starts}: one segment each")
