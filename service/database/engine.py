"""Engines and transactions for SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

BUSY_SECONDS = 10
USE = "Use sqlite:///file.db or postgresql://user@host/name"
SQLITE_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -65536",
    "PRAGMA mmap_size = 268435456",
    "PRAGMA wal_autocheckpoint = 4000",
)

# One writer at a time inside a process: SQLite's own waiting sleeps and polls, and may starve a thread.
_writers: WeakKeyDictionary[Engine, threading.RLock] = WeakKeyDictionary()


class DatabaseUrlError(ValueError):
    """The database address cannot be used; the message says what to write instead."""


def open_engine(url: str) -> Engine:
    """An engine for `sqlite:///path` or `postgresql://…` (served by psycopg 3; `postgres://…` means the same).

    Raises:
        DatabaseUrlError: another kind of address, or a SQLite file that cannot be made, opened or written.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # the address itself may hold a password: it is not shown
        raise DatabaseUrlError(f"PACENOTE_DATABASE_URL is no database address. {USE}") from error
    backend = parsed.get_backend_name()
    if backend in ("postgresql", "postgres"):
        url_psycopg = parsed.set(drivername="postgresql+psycopg")
        engine = create_engine(url_psycopg, pool_size=8, max_overflow=16, pool_pre_ping=True)
        event.listen(engine, "connect", _prepare_postgresql)
        return engine
    if backend != "sqlite":
        raise DatabaseUrlError(f"{backend} is not supported. {USE}")
    if parsed.query:
        raise DatabaseUrlError(f"A SQLite address takes no ?{next(iter(parsed.query))}=…; in a name write ? as %3F.")
    return _open_sqlite(parsed.set(drivername="sqlite"))


def _open_sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise DatabaseUrlError(
            "An in-memory SQLite database is lost between connections. Name a file: sqlite:///file.db"
        )
    path = Path(url.database)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _probe(path)
    except OSError as error:
        raise DatabaseUrlError(f"Cannot make the folder {path.parent} for the database: {error.strerror}") from error
    except sqlite3.Error as error:
        raise DatabaseUrlError(f"Cannot use {path} as the database: {error}. Name another file or folder.") from error
    connect_args = {"check_same_thread": False, "timeout": BUSY_SECONDS}
    engine = create_engine(url, connect_args=connect_args, pool_size=8, max_overflow=16)
    _writers[engine] = threading.RLock()
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _probe(path: Path) -> None:
    """Open the file for writing once, so that what is wrong with it is said at the start."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE probe (written INTEGER)")  # beginning alone succeeds on a read-only file
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):  # another process is writing: then it can be written
            raise
    finally:
        connection.close()


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    """Queries about many runs look dear to the planner, and are over before their code would be compiled."""
    connection.execute("SET jit = off")
    connection.commit()


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver would begin transactions by itself, too late to be IMMEDIATE
    for pragma in SQLITE_PRAGMAS:
        connection.execute(pragma)


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


@contextmanager
def reading(engine: Engine) -> Generator[Session]:
    """A session on one snapshot, for reading only."""
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with Session(connection, expire_on_commit=False) as session:
            yield session


@contextmanager
def write_transaction(engine: Engine) -> Generator[Connection]:
    """As `writing`, without a session: for what is written thousands of times a second."""
    with (
        _writers.get(engine, nullcontext()),
        engine.connect().execution_options(writing=True) as connection,
        connection.begin(),
    ):
        yield connection


@contextmanager
def writing(engine: Engine) -> Generator[Session]:
    """A session that commits at the end, or rolls back if anything was raised.

    On SQLite the transaction begins IMMEDIATE, and only one thread of a process is inside: it waits for its turn at the
    start and never fails half-way.
    """
    with (
        _writers.get(engine, nullcontext()),
        engine.connect().execution_options(writing=True) as connection,
        Session(connection, expire_on_commit=False) as session,
    ):
        yield session
        session.commit()
