"""`pacenote sync`: sends what a dead trainer left in its spool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from service.cli.output import REFUSED, fail, warn

EXAMPLE = "Example: pacenote sync http://127.0.0.1:8350 --spool gs://bucket/spool"


def sync(
    address: Annotated[str, typer.Argument(envvar="PACENOTE_URL", help="The service.")] = "http://127.0.0.1:8350",
    spool: Annotated[
        str | None, typer.Option(help="Folder or fsspec address; PACENOTE_SPOOL_DIR or the user's by default.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Send also what was acknowledged before.")] = False,
    patience: Annotated[float, typer.Option(min=0.0, help="Seconds without success to give up at.")] = 60.0,
) -> None:
    """Send what is left in spools. Records that the service has already are not stored twice.

    Exit 0: the service has everything; 1: something is left; 2: something was refused.
    """
    from trainer_hooks.stores import default_folder
    from trainer_hooks.sync import sync as send

    folder = spool or os.environ.get("PACENOTE_SPOOL_DIR") or default_folder()
    if spool is not None and "://" not in spool and not Path(spool).is_dir():
        fail(f"There is no folder {spool}.")
    try:
        report = send(address, spool, again=again, patience=patience, say=typer.echo)
    except (ValueError, OSError, ImportError) as error:
        fail(str(error))
    typer.echo(f"{report.spools} spools in {folder}: {report}")
    if report.trouble:
        warn(f"Not everything was sent: {report.trouble}")
    if report.rejected:
        warn("What the service rejected is kept beside the spool as *.rejected.jsonl")
    if report.left or report.rejected:
        raise typer.Exit(1 if report.left else REFUSED)
