"""`pacenote sync`: sends what trainers left in a spool or in its remote copy, once or as it comes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from service.cli.output import REFUSED, fail, warn

EXAMPLE = "Example: pacenote sync gs://bucket/spool --watch"
SERVICE = "http://127.0.0.1:8350"


def sync(
    address: Annotated[
        str | None,
        typer.Argument(help="A spool: folder or fsspec address. An http(s):// address is the service to send to."),
    ] = None,
    service: Annotated[str, typer.Option("--to", envvar="PACENOTE_URL", help="The service.")] = SERVICE,
    spool: Annotated[
        str | None, typer.Option(help="Folder or fsspec address; PACENOTE_SPOOL_DIR or the user's by default.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Send also what was acknowledged before.")] = False,
    follow: Annotated[bool, typer.Option("--watch", help="Go on with what comes, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks of --watch.")] = 5.0,
    patience: Annotated[float, typer.Option(min=0.0, help="Seconds without success to give up at.")] = 60.0,
) -> None:
    """Send what spools and their remote copies hold. Records that the service has already are not stored twice.

    Exit 0: the service has everything; 1: something is left; 2: something was refused.
    """
    from trainer_hooks.stores import default_folder
    from trainer_hooks.sync import sync as send
    from trainer_hooks.sync import watch

    if address is not None and address.startswith(("http://", "https://")):
        service = address
    elif address is not None and spool is not None:
        fail(f"Two spools are named, {address} and {spool}: name one.")
    else:
        spool = address or spool
    folder = spool or os.environ.get("PACENOTE_SPOOL_DIR") or default_folder()
    if spool is not None and "://" not in spool and not Path(spool).is_dir():
        fail(f"There is no folder {spool}.")
    try:
        if follow:
            typer.echo(f"Watching {folder} for {service}; Ctrl-C ends it, and the same command goes on from there.")
            report = watch(service, spool, again=again, every=every, say=typer.echo)
        else:
            report = send(service, spool, again=again, patience=patience, say=typer.echo)
    except (ValueError, OSError, ImportError) as error:
        fail(str(error))
    typer.echo(f"{report.spools} spool{'' if report.spools == 1 else 's'} in {folder}: {report}")
    if report.trouble:
        warn(f"Not everything was sent: {report.trouble}")
    if report.rejected:
        warn("What the service rejected is kept beside the spool as *.rejected.jsonl, or in its copy")
    if report.left or report.trouble or report.rejected:
        raise typer.Exit(1 if report.left or report.trouble else REFUSED)
