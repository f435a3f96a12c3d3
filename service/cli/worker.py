"""`pacenote worker`: the background tasks alone, beside services that run with --no-worker."""

from __future__ import annotations

from types import FrameType
from typing import Annotated

import typer

from service.cli.opening import open_context, read_settings

EXAMPLE = "Example: pacenote worker --database-url postgresql://pacenote@localhost/pacenote"


def worker(
    database_url: Annotated[str | None, typer.Option(help="By default PACENOTE_DATABASE_URL.")] = None,
    public_url: Annotated[str | None, typer.Option(help="Address that links in messages begin with.")] = None,
) -> None:
    """Seal, judge and deliver, without a server. Ctrl-C or SIGTERM ends it. Any number may work on one database."""
    import signal
    import threading

    context = open_context(read_settings(database_url=database_url, public_url=public_url))
    from service.worker.loop import Worker

    stop = threading.Event()

    def ended(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ended)
    work = Worker(context)
    work.start()
    typer.echo("The worker seals, judges and delivers.")
    stop.wait()
    work.stop()
    context.engine.dispose()
