"""What the commands about rules and deviations share: the database, a run or a project, and who speaks."""

from __future__ import annotations

import getpass
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from service.cli.opening import database_trouble, open_context, read_settings
from service.cli.output import fail

if TYPE_CHECKING:
    from pydantic import ValidationError

    from service.context import Context

Url = Annotated[str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")]
By = Annotated[str | None, typer.Option("--by", help="Who says so; by default the name you are logged in with.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id or name.")]


@contextmanager
def judging_context(database_url: str | None) -> Generator[Context]:
    """The database, with everything that it or the service refuses as one line and exit 2."""
    from pydantic import ValidationError

    from service.cli.backtesting import BacktestError
    from service.errors import ProblemError

    settings = read_settings(database_url=database_url)
    context = open_context(settings)
    try:
        with database_trouble(settings.database_url):
            yield context
    except ProblemError as error:
        fail(error.detail)
    except BacktestError as error:
        fail(str(error))
    except ValidationError as error:
        fail(_first(error))
    finally:
        context.engine.dispose()


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


def moment_in_words(at: float) -> str:
    """A time to the minute, in UTC."""
    from service.runs.fields import utc_time

    return f"{utc_time(at):%Y-%m-%d %H:%M} UTC"


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
