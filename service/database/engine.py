"""Engines and transactions for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

SQLITE_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA busy_timeout = 10000",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -65536",
    "PRAGMA mmap_size = 268435456",
)


class DatabaseUrlError(ValueError):
    """The database address cannot be used; the message says what to write instead."""


def open_engine(url: str) -> Engine:
    """An engine for `sqlite:///path` or `postgresql://…` (served by psycopg 3).

    Raises:
        DatabaseUrlError: another kind of address, or a SQLite file whose folder cannot be made.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise DatabaseUrlError(
            f"PACENOTE_DATABASE_URL is no database address: {url!r}. Use sqlite:///file.db or postgresql://user@host/name"
        ) from error
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        return create_engine(parsed.set(drivername="postgresql+psycopg"), pool_size=8, max_overflow=16, pool_pre_ping=True)
    if backend != "sqlite":
        raise DatabaseUrlError(f"{backend} is not supported. Use sqlite:///file.db or postgresql://user@host/name")
    if not parsed.database or parsed.database == ":memory:":
        raise DatabaseUrlError("An in-memory SQLite database is lost between connections. Name a file: sqlite:///file.db")
    folder = Path(parsed.database).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUrlError(f"Cannot make the folder {folder} for the database: {error.strerror}") from error
    engine = create_engine(parsed, connect_args={"check_same_thread": False, "timeout": 10}, pool_size=8, max_overflow=16)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver would begin transactions by itself, too late to be IMMEDIATE
    for pragma in SQLITE_PRAGMAS:
        connection.execute(pragma)


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """A session on one snapshot, for reading only."""
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with Session(connection, expire_on_commit=False) as session:
            yield session


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """A session that commits at the end, or rolls back if anything was raised.

    On SQLite the transaction begins IMMEDIATE: it waits for its turn at the start and never fails half-way.
    """
    with engine.connect().execution_options(writing=True) as connection, Session(connection, expire_on_commit=False) as session:
        yield session
        session.commit()
