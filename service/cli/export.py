"""`pacenote export`: takes a run's series out, whole."""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from service.cli.opening import database_trouble, open_database, read_settings
from service.cli.output import fail

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from service.database.models import Run
    from service.exporters.run_series import RunSeries

EXAMPLE = "Example: pacenote export olmo3-7b/olmo3-7b-v7x --format parquet --out run.parquet"
Format = Literal["csv", "parquet", "arrow", "jsonl", "wandb", "tensorboard"]
ENDINGS = {"csv": ".csv", "parquet": ".parquet", "arrow": ".arrows", "jsonl": ".jsonl", "wandb": ".history.jsonl"}
PER_POINT = ("csv", "parquet", "arrow")


def export(
    run: Annotated[str, typer.Argument(help="A run's id, NAME, or PROJECT/NAME.")],
    format_: Annotated[Format, typer.Option("--format", help="wandb: history rows as JSON lines.")] = "csv",
    stage: Annotated[str | None, typer.Option(help="Where a name stands for several stages.")] = None,
    out: Annotated[Path | None, typer.Option(help="A file, - for stdout; tensorboard: a folder.")] = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also points that no longer count (csv, parquet, arrow).")
    ] = False,
    database_url: Annotated[str | None, typer.Option(help="By default PACENOTE_DATABASE_URL.")] = None,
) -> None:
    """Write every point of every metric of a run. Nothing is thinned; memory does not grow with the run's length."""
    from service.database.engine import reading
    from service.exporters.run_series import RunSeries

    if superseded and format_ not in PER_POINT:
        fail(f"--superseded goes with {', '.join(PER_POINT)}: {format_} has one row per step.")
    url = read_settings(database_url=database_url).database_url
    engine = open_database(url)
    with database_trouble(url), reading(engine) as session:
        found = _find(session, run, stage)
        series = RunSeries(session, found, superseded=superseded)
        if not series.names:
            fail(f"The run {run} has no points.")
        if str(out) == "-":
            if format_ == "tensorboard":
                fail("TensorBoard reads a folder: name one with --out.")
            _writer(format_)(series, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        target = _target(found, format_, out)
        count = _write(series, _writer(format_), target)
    typer.echo(f"{count:,} points of {len(series.names):,} metrics are in {target} ({target.stat().st_size:,} bytes)")


def _find(session: Session, text: str, stage: str | None) -> Run:
    from service.exporters.run_series import find_runs
    from service.runs.repository import RunRepository

    try:
        found = RunRepository(session).by_uuid(UUID(text))
        if found is not None:
            return found
    except ValueError:
        pass
    runs = find_runs(session, text, stage)
    if not runs:
        fail(f"There is no run {text}{f' of {stage}' if stage else ''}; GET /api/v1/runs lists the runs.")
    if len(runs) > 1:
        several = ", ".join(f"{project}/{run.name} {run.stage} ({run.uuid})" for project, run in runs[:6])
        fail(f"{text} stands for {len(runs)} runs: {several}. Give --stage, or the id.")
    return runs[0][1]


def _writer(format_: Format) -> Callable[[RunSeries, IO[bytes]], int]:
    from service.exporters import events, lines, tables

    writers: dict[str, Callable[[RunSeries, IO[bytes]], int]] = {
        "csv": tables.write_csv,
        "parquet": tables.write_parquet,
        "arrow": tables.write_arrow,
        "jsonl": lines.write_jsonl,
        "wandb": lines.write_wandb,
        "tensorboard": events.write_tensorboard,
    }
    return writers[format_]


def _target(run: Run, format_: Format, out: Path | None) -> Path:
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in f"{run.name}-{run.stage}")
    if format_ != "tensorboard":
        return out or Path(f"{safe}{ENDINGS[format_]}")
    folder = out or Path(safe)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"{folder}: cannot be made ({error.strerror}).")
    return folder / f"events.out.tfevents.{int(time.time())}.pacenote"


def _write(series: RunSeries, writer: Callable[[RunSeries, IO[bytes]], int], target: Path) -> int:
    """Write the whole file beside its place, then put it there."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.new"):
        if not _lives(left.name.rsplit(".", 2)[1]):  # of an export that was killed
            left.unlink(missing_ok=True)
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            count = writer(series, file)
        new.replace(target)
    except OSError as error:
        fail(f"{target}: cannot be written ({error.strerror}).")
    finally:
        with suppress(OSError):  # where nothing can be written nothing was
            new.unlink()
    return count


def _lives(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
