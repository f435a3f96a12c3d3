"""The schema's revision: making it, checking it, upgrading it."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect
from sqlalchemy.exc import DBAPIError

import migrations
from service.database.engine import DatabaseUrlError, open_engine


class SchemaError(RuntimeError):
    """The database is on another revision than this program; the message says what to do."""


def alembic_config(engine: Engine) -> Config:
    """Alembic's configuration for the migrations that ship with the program."""
    config = Config()
    folder = str(Path(migrations.__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))  # % means something to ConfigParser
    config.attributes["engine"] = engine
    return config


def head_revision(engine: Engine) -> str:
    """The revision that this program works with."""
    head = ScriptDirectory.from_config(alembic_config(engine)).get_current_head()
    assert head is not None
    return head


def current_revision(engine: Engine) -> str | None:
    """The database's revision, None if it has none."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: Engine) -> None:
    """Bring the schema to this program's revision, one transaction per revision."""
    command.upgrade(alembic_config(engine), "head")


def ensure_schema(engine: Engine) -> None:
    """Create an empty database's schema; refuse any other revision than this program's.

    Raises:
        SchemaError: the database has another revision, or tables that are not ours.
        DatabaseUrlError: the database cannot be reached.
    """
    head = head_revision(engine)
    try:
        current = current_revision(engine)
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise DatabaseUrlError(f"Cannot use the database {engine.url.render_as_string()}: {reason}") from error
    if current == head:
        return
    if current is None:
        tables = inspect(engine).get_table_names()
        if tables:
            raise SchemaError(
                f"The database holds tables but no revision of ours ({', '.join(sorted(tables)[:3])} …). "
                "Name an empty database."
            )
        upgrade(engine)
        return
    raise SchemaError(
        f"The database is on revision {current}, this program works with {head}. Run: pacenote database upgrade"
    )


__all__ = ["SchemaError", "current_revision", "ensure_schema", "head_revision", "open_engine", "upgrade"]
