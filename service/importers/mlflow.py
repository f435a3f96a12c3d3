"""MLflow: its file store (`mlruns/<experiment>/<run>/metrics/…`) and its SQLite store."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from service.importers.blocks import ROWS_AT_ONCE, Block, Column, blocks_of
from service.importers.formats import Format, Head, Source
from service.importers.rows import NO_NUMBER, Account, LogError, Row, number, whole
from service.importers.run_names import distinct
from service.importers.sqlite_files import opened, tables_of
from service.importers.text import open_lines

METRIC_LINE = re.compile(r"^\d{12,14} \S+( -?\d+)?\s*$")


def recognise_store(head: Head) -> str | None:
    """Why a folder is a run, an experiment or a store of MLflow's, or a file one metric of it; None if it is not."""
    if head.path.is_dir():
        found = any(_runs(head.path))
        return "folders with meta.yaml and metrics/, as MLflow's file store has them" if found else None
    lines = [line for line in head.lines if line.strip()]
    found = "metrics" in head.path.parts and all(METRIC_LINE.match(line) for line in lines[:-1]) and lines
    return "lines `timestamp value step` in a folder metrics/, as in MLflow's file store" if found else None


def read_store(source: Source, account: Account) -> Iterator[Block]:
    """Every metric of every run, a run after another."""
    if source.path.is_file():
        account.note("one metric of a run; name the folder above to take the whole run")
        parts = source.path.parts
        known = "metrics" in parts[:-1]
        metric = "/".join(parts[len(parts) - parts[::-1].index("metrics") :]) if known else source.path.name
        yield from blocks_of(_lines(source, source.path, metric, account), in_time_order=False)
        return
    found = [(folder, _meta(folder)) for folder in _runs(source.path)]
    kept = [(folder, meta) for folder, meta in found if meta.get("lifecycle_stage") != "deleted"]
    if len(kept) < len(found):
        account.note(f"{len(found) - len(kept)} deleted runs are left out")
    names = distinct([meta.get("run_name", "") for _, meta in kept], [folder.name for folder, _ in kept])
    for (folder, _), name in zip(kept, names, strict=True):
        for path in sorted(path for path in (folder / "metrics").rglob("*") if path.is_file()):
            metric = path.relative_to(folder / "metrics").as_posix()
            yield from blocks_of(_lines(source, path, metric, account), run=name, in_time_order=False)


def _runs(folder: Path) -> Iterator[Path]:
    found = folder.glob("meta.yaml"), folder.glob("*/meta.yaml"), folder.glob("*/*/meta.yaml")
    inner = folder.glob("mlruns/*/*/meta.yaml")
    yield from sorted(path.parent for paths in (*found, inner) for path in paths if (path.parent / "metrics").is_dir())


def _meta(folder: Path) -> dict[str, str]:
    """What meta.yaml says of a run, as far as each stands on a line of its own."""
    lines = (folder / "meta.yaml").read_text(encoding="utf-8", errors="replace").splitlines()
    return {key: value.strip(" '\"") for key, colon, value in (line.partition(":") for line in lines) if colon}


def _lines(source: Source, path: Path, metric: str, account: Account) -> Iterator[Row]:
    with open_lines(path, source.progress) as lines:
        for place, line in enumerate(lines, 1):
            account.lines += 1
            cells = line.split()
            time, value = (number(cells[0]), number(cells[1])) if len(cells) in (2, 3) else (None, None)
            step = whole(cells[2]) if len(cells) == 3 else 0
            if time is None or value is None or step is None or step < 0:
                if cells:
                    account.refuse(NO_NUMBER, f"{path.name}, line {place}")
                continue
            yield Row(step, metric, value, time / 1000)


def recognise_database(head: Head) -> str | None:
    """Why a SQLite file is MLflow's, None if it is not."""
    found = {"runs", "metrics", "experiments"} <= tables_of(head)
    return "a SQLite file with MLflow's tables" if found else None


def read_database(source: Source, account: Account) -> Iterator[Block]:
    """Every metric of every run that is not deleted, in the order they were logged."""
    try:
        with opened(source.path) as database:
            runs = database.execute("SELECT run_uuid, name, lifecycle_stage FROM runs ORDER BY start_time").fetchall()
            kept = [(str(uuid), str(name or "")) for uuid, name, stage in runs if stage == "active"]
            if len(kept) < len(runs):
                account.note(f"{len(runs) - len(kept)} deleted runs are left out")
            ids = [uuid for uuid, _ in kept]
            for uuid, name in zip(ids, distinct([name for _, name in kept], ids), strict=True):
                yield from _database_run(database, uuid, name, account)
    except sqlite3.Error as error:
        raise LogError(f"{source.path}: the SQLite file cannot be read ({error})") from error


def _database_run(database: sqlite3.Connection, uuid: str, name: str, account: Account) -> Iterator[Block]:
    query = "SELECT key, step, value, timestamp, is_nan FROM metrics WHERE run_uuid = ? ORDER BY key, timestamp, rowid"
    found = database.execute(query, (uuid,))
    while batch := found.fetchmany(ROWS_AT_ONCE):
        account.lines += len(batch)
        whole_rows = [row for row in batch if None not in row and not any(isinstance(cell, str) for cell in row[1:])]
        if len(whole_rows) < len(batch):
            account.refuse(NO_NUMBER, f"run {name}", len(batch) - len(whole_rows))
            batch = whole_rows
        keys = np.array([row[0] for row in batch], object)
        steps = np.array([row[1] for row in batch], np.int64)
        values = np.array([float("nan") if row[4] else row[2] for row in batch], np.float64)
        times = np.array([row[3] / 1000 for row in batch], np.float64)
        if (steps < 0).any():
            account.refuse("a step below 0", f"run {name}", int((steps < 0).sum()))
            good: Any = steps >= 0
            keys, steps, values, times = keys[good], steps[good], values[good], times[good]
        if not len(steps):
            continue
        columns = {key: Column(values[keys == key], np.flatnonzero(keys == key)) for key in dict.fromkeys(keys)}
        yield Block(steps, columns, times, name, in_time_order=False)


def _store_files(path: Path) -> list[Path]:
    """What holds runs: artifacts may be large and are not read."""
    if path.is_file():
        return [path]
    folders = list(_runs(path))
    metrics = [file for folder in folders for file in (folder / "metrics").rglob("*") if file.is_file()]
    return sorted([*metrics, *(folder / "meta.yaml" for folder in folders)])


STORE = Format("mlflow", "MLflow's file store", recognise_store, read_store, files=_store_files)
DATABASE = Format("mlflow_sqlite", "MLflow's SQLite store", recognise_database, read_database)
