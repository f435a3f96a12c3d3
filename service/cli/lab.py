"""`pacenote lab`: the small reproduction that comes with the program."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Annotated

import typer

from service.cli.output import INTERRUPTED, fail, warn

EXAMPLE_RECORD = "Example: pacenote lab record --out service/references/bundles/lab"


def record(
    out: Annotated[Path, typer.Option(help="Folder of the bundle to write.")],
    keep_base: Annotated[
        bool, typer.Option("--keep-base", help="Use the base checkpoint that is there instead of training it again.")
    ] = False,
) -> None:
    """Record the lab's base checkpoint, reference run and healthy siblings again; minutes on two cores."""
    import signal
    import threading

    try:
        from reproduction.lab.record import record as run
    except ImportError as error:
        fail(f"The lab needs {error.name}: install the extra with `pip install 'pacenote[lab]'`.")
    from service.compare.noise import sibling_tolerance

    stop = threading.Event()

    def interrupted(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, interrupted)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):  # said now, not after minutes of training
            pass
    except OSError as error:
        fail(f"Cannot write into {out}: {error.strerror}")
    try:
        run(out, sibling_tolerance, keep_base=keep_base, should_stop=stop.is_set)
    except InterruptedError as error:
        warn(str(error))
        raise typer.Exit(INTERRUPTED) from error
    except (OSError, ValueError) as error:
        fail(str(error))
    typer.echo(f"The bundle is in {out}.")
