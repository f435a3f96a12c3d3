"""SQLite files of other trackers, opened so that nothing in them changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from service.importers.formats import Head
from service.importers.text import unpacked

MAGIC = b"SQLite format 3\0"


@contextmanager
def opened(path: Path) -> Generator[sqlite3.Connection]:
    """A connection that cannot write, to the file or to what is compressed in it."""
    with unpacked(path) as plain, closing(_connected(plain)) as database:
        yield database


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)


def tables_of(head: Head) -> set[str]:
    """Names of the tables, none if the file is no SQLite file."""
    if not head.data.startswith(MAGIC):
        return set()
    try:
        with opened(head.path) as database:
            return {str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error:
        return set()
