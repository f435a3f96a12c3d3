"""`pacenote worker`: the background tasks alone, beside services that run with --no-worker."""

from __future__ import annotations

import contextlib
from types import FrameType
from typing import Annotated

import typer

from service.cli.opening import open_context, read_settings

WAIT = 1.0  # seconds after which a signal is noticed that came just before the wait began
EXAMPLE = "Example: pacenote worker --database-url postgresql://pacenote@localhost/pacenote"


def worker(
    database_url: Annotated[str | None, typer.Option(help="By default PACENOTE_DATABASE_URL.")] = None,
    public_url: Annotated[str | None, typer.Option(help="Address that links in messages begin with.")] = None,
) -> None:
    """Seal, judge and deliver, without a server. Ctrl-C or SIGTERM ends it. Any number may work on one database."""
    import queue
    import signal

    context = open_context(read_settings(database_url=database_url, public_url=public_url))
    from service.arenas import share_arenas
    from service.worker.loop import Worker

    share_arenas()

    # Not an Event: its lock is no lock for a handler, which may come while this thread holds it in `wait`.
    ends: queue.SimpleQueue[int] = queue.SimpleQueue()

    def ended(number: int, _frame: FrameType | None) -> None:
        ends.put(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ended)
    work = Worker(context)
    work.start()
    typer.echo("The worker seals, judges and delivers.")
    while True:
        with contextlib.suppress(queue.Empty):
            ends.get(timeout=WAIT)
            break
    work.stop()
    context.engine.dispose()
