"""SQLite files of other trackers, opened so that nothing in them changes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from service.importers.formats import Head

MAGIC = b"SQLite format 3\0"


def opened(path: Path) -> sqlite3.Connection:
    """A connection that cannot write."""
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)


def tables_of(head: Head) -> set[str]:
    """Names of the tables, none if the file is no SQLite file."""
    if not head.data.startswith(MAGIC):
        return set()
    try:
        with closing(opened(head.path)) as database:
            return {str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error:
        return set()
