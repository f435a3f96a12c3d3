"""`pacenote database`: the schema's revision."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.opening import database_trouble, read_settings
from service.cli.output import WRONG_REVISION, fail

EXAMPLE_UPGRADE = "Example: pacenote database upgrade --database-url postgresql://pacenote@localhost/pacenote"
EXAMPLE_CURRENT = "Example: pacenote database current"

Url = Annotated[str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")]


def upgrade(database_url: Url = None) -> None:
    """Bring the database to this program's revision. Stop the service first, and have a backup."""
    url = read_settings(database_url=database_url).database_url
    with database_trouble(url):
        from alembic.util import CommandError

        from service.database.engine import open_engine
        from service.database.migrate import current_revision, head_revision
        from service.database.migrate import upgrade as migrate

        engine = open_engine(url)
        before, head = current_revision(engine), head_revision(engine)
        try:
            migrate(engine)
        except CommandError as error:
            fail(
                f"The database is on revision {before}, which this program ({head}) does not know: {error}",
                WRONG_REVISION,
            )
    typer.echo(
        f"The database is on revision {head}" + (" already." if before == head else f" (it was {before or 'empty'}).")
    )


def current(database_url: Url = None) -> None:
    """Say which revision the database is on; exit 3 if it is not this program's."""
    url = read_settings(database_url=database_url).database_url
    with database_trouble(url):
        from service.database.engine import open_engine
        from service.database.migrate import current_revision, head_revision

        missing = _missing_file(url)
        if missing is not None:
            fail(f"There is no database {missing} yet; `pacenote serve` makes it.", WRONG_REVISION)
        engine = open_engine(url)
        now, head = current_revision(engine), head_revision(engine)
    typer.echo(f"{now or 'none'} (this program works with {head})")
    if now != head:
        raise typer.Exit(WRONG_REVISION)


def _missing_file(url: str) -> Path | None:
    """The file of a SQLite database that is not there: opening it would make it."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # said by who opens it
        return None
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        return None
    path = Path(parsed.database)
    return None if path.exists() else path
