"""How commands speak: results on stdout, one line of trouble on stderr, and the exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

JUDGED_NOT = 1  # a judgement said it is not
REFUSED = 2  # wrong use, or input that cannot be used
INTERRUPTED = 130  # Ctrl-C, as shells count it
WRONG_REVISION = 3  # the database's schema is another program's
CANNOT_TELL = 4  # a check that nothing fails and something leaves open
PIPE_WIDTH = 200  # of tables that go into a file or a pipe


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


@contextmanager
def watching(text: str) -> Generator[None]:
    """Shows that something is going on, where a person watches."""
    if not interactive():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def plain_console() -> Console:
    """A console that prints text as it is: names may hold what rich would take for markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False)


def make_table(*columns: str) -> Table:
    """An empty table; what does not fit into a cell goes on in the next line, nothing is cut off."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
