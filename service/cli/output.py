"""How commands speak: results on stdout, one line of trouble on stderr, and the exit codes."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

JUDGED_NOT = 1  # a judgement said it is not
REFUSED = 2  # wrong use, or input that cannot be used
INTERRUPTED = 130  # Ctrl-C, as shells count it
WRONG_REVISION = 3  # the database's schema is another program's


def fail(message: str, code: int = REFUSED) -> NoReturn:
    """Say what is wrong in one line and end the command.

    Raises:
        typer.Exit: always.
    """
    typer.echo(f"pacenote: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def warn(message: str) -> None:
    """Say something that the command goes on in spite of."""
    typer.echo(f"pacenote: {' '.join(message.split())}", err=True)


def interactive() -> bool:
    """Whether a person watches: progress bars are drawn then only."""
    return sys.stderr.isatty()
