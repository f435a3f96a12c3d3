"""One import of a run at a time: what a broken import left is removed by the next, which must not meet a living one."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from sqlalchemy import Engine, func, select

from service.importers.rows import LogError

WAITING = "another import of this is under way: waiting for it"


@contextmanager
def sole_import(engine: Engine, runs: Iterable[UUID], say: Callable[[str], None]) -> Generator[None]:
    """Waits until no other process imports these runs; how this one ends, the next may go on.

    SQLite has one writer: there one import of a database goes on at a time, by a lock on a file beside it. PostgreSQL
    has advisory locks, taken in the order of their numbers and held by a connection of their own.

    Raises:
        LogError: the file beside the database cannot be written.
    """
    held = _file_lock(engine, say) if engine.dialect.name == "sqlite" else _advisory_locks(engine, runs, say)
    with held:
        yield


@contextmanager
def _file_lock(engine: Engine, say: Callable[[str], None]) -> Generator[None]:
    path = Path(f"{engine.url.database}-import")
    try:
        file = path.open("a")
    except OSError as error:
        raise LogError(f"{path}: cannot be written ({error.strerror})") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(WAITING)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _advisory_locks(engine: Engine, runs: Iterable[UUID], say: Callable[[str], None]) -> Generator[None]:
    numbers = sorted(int.from_bytes(run.bytes[:8], signed=True) for run in set(runs))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.detach()  # closed at the end, and with it the locks: the pool would keep both
        said = False
        for number in numbers:
            if not connection.scalar(select(func.pg_try_advisory_lock(number))):
                if not said:
                    say(WAITING)
                said = True
                connection.execute(select(func.pg_advisory_lock(number)))
        yield
