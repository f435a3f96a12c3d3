"""Settings and databases for commands, with every failure as one line."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from service.cli.output import WRONG_REVISION, fail, warn

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from service.context import Context
    from service.settings import Settings


def read_settings(**given: Any) -> Settings:
    """Settings from the environment; `given` values that are not None go before it."""
    from pydantic import ValidationError

    from service.settings import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"])
        fail(f"PACENOTE_{name.upper()}: {first['msg']} (it is {first.get('input')!r})")


@contextmanager
def database_trouble(url: str) -> Generator[None]:
    """Turns what a database refuses inside this block into one line: exit 3 for a wrong revision, 2 for the rest."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    from service.database.engine import DatabaseUrlError
    from service.database.migrate import SchemaError

    try:
        yield
    except SchemaError as error:
        fail(str(error), WRONG_REVISION)
    except DatabaseUrlError as error:
        fail(str(error))
    except (SQLAlchemyError, sqlite3.Error) as error:
        reason = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
        shown = make_url(url).render_as_string(hide_password=True)
        fail(f"The database {shown} cannot be used: {reason}")


def open_database(url: str) -> Engine:
    """An engine on a database of this program's revision; an empty one gets its schema."""
    from service.database.engine import open_engine
    from service.database.migrate import ensure_schema

    with database_trouble(url):
        engine = open_engine(url)
        ensure_schema(engine)
        return engine


def install_shipped_references(engine: Engine, url: str) -> None:
    """Install the references that come with the program; one that cannot be is said, and the rest goes on."""
    from service.errors import ConflictError
    from service.references.bundle import BundleError
    from service.references.shipped import install_shipped

    with database_trouble(url):
        try:
            install_shipped(engine)
        except (BundleError, ConflictError) as error:
            detail = error.detail if isinstance(error, ConflictError) else str(error)
            warn(f"A shipped reference was not installed: {detail}")


def open_context(settings: Settings) -> Context:
    """What endpoints and workers share, for a command that works on the database without a server."""
    from service.broker import Broker
    from service.context import Context
    from service.ingest.committer import Committer

    engine, broker = open_database(settings.database_url), Broker()
    return Context(settings, engine, Committer(engine, broker), broker)


@contextmanager
def service_context(settings: Settings) -> Generator[Context]:
    """What endpoints need, on the database itself; whatever it or they refuse becomes one line and exit 2."""
    from pydantic import ValidationError

    from service.errors import ProblemError

    context = open_context(settings)
    try:
        with database_trouble(settings.database_url):
            yield context
    except ProblemError as error:
        fail(error.detail.removeprefix("body."))
    except ValidationError as error:
        first = error.errors()[0]
        fail(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")
    finally:
        context.engine.dispose()
