"""Trackio's SQLite file: one JSON object of metrics per run and step. (Its Parquet files are read as any Parquet.)"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from service.importers.blocks import Block, blocks_of
from service.importers.documents import mapping
from service.importers.formats import Format, Head, Source
from service.importers.json_lines import flat
from service.importers.rows import EMPTY_LINE, Account, LogError, Row, unix_seconds
from service.importers.sqlite_files import opened, tables_of


def recognise(head: Head) -> str | None:
    """Why a SQLite file is Trackio's, None if it is not."""
    tables = tables_of(head)
    return "a SQLite file with Trackio's tables" if {"metrics", "configs"} <= tables and "runs" not in tables else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """Every run, in the order its rows were logged."""
    try:
        with opened(source.path) as database:
            runs = database.execute("SELECT run_name FROM metrics GROUP BY run_name ORDER BY MIN(id)").fetchall()
            for (run,) in runs:
                found = database.execute(
                    "SELECT id, step, timestamp, metrics FROM metrics WHERE run_name = ? ORDER BY id", (run,)
                )
                yield from blocks_of(_rows(found, account), run=str(run))
    except sqlite3.Error as error:
        raise LogError(f"{source.path}: the SQLite file cannot be read ({error})") from error


def _rows(found: sqlite3.Cursor, account: Account) -> Iterator[Row]:
    for row_id, step, stamp, text in found:
        account.lines += 1
        try:
            values = list(flat(mapping(json.loads(text))))
        except (ValueError, TypeError, RecursionError):
            values = []
        if not values or not isinstance(step, int) or step < 0:
            account.refuse(EMPTY_LINE, f"row {row_id}", max(len(values), 1))
            continue
        time = unix_seconds(stamp)
        yield from (Row(step, name, value, time) for name, value in values)


DATABASE = Format("trackio", "Trackio's SQLite file", recognise, read)
