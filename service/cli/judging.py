"""What the commands about rules and deviations share: the database, a run or a project, and who speaks."""

from __future__ import annotations

import getpass
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from service.cli.opening import read_settings, service_context
from service.cli.output import fail

if TYPE_CHECKING:
    from service.context import Context

Url = Annotated[str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")]
By = Annotated[str | None, typer.Option("--by", help="Who says so; by default the name you are logged in with.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id or name.")]


@contextmanager
def judging_context(database_url: str | None) -> Generator[Context]:
    """The database, with everything that it or the service refuses as one line and exit 2."""
    from service.cli.backtesting import BacktestError

    with service_context(read_settings(database_url=database_url)) as context:
        try:
            yield context
        except BacktestError as error:
            fail(str(error))


def run_uuid(context: Context, name: str) -> UUID:
    """The id of a run by its id or name."""
    from service.cli.backtesting import find_run
    from service.database.engine import reading

    with reading(context.engine) as session:
        return find_run(session, name).uuid


def speaker(by: str | None) -> str:
    """Who speaks: as said, else the name of the account."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return fail("--by: say who you are; this account has no name.")


def given_time(option: str, text: str | None) -> datetime | None:
    """The time that an option gives."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{option}: {text!r} is no time; write 2026-12-01T08:00:00Z.")
    if at.tzinfo is None:
        fail(f"{option}: {text!r} has no time zone; write 2026-12-01T08:00:00Z.")
    return at


def moment_in_words(at: float) -> str:
    """A time to the minute, in UTC."""
    from service.runs.fields import utc_time

    return f"{utc_time(at):%Y-%m-%d %H:%M} UTC"
