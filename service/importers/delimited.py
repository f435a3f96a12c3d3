"""Tables: CSV, TSV, semicolons or white space, with any column names.

A wide table has one column per metric; a long one has columns `step, metric, value`. Empty cells are no value, "NaN" is
a value. The ranges that W&B puts beside each column of its exports (`…__MIN`, `…__MAX`) are left out; the run's
name before " - " is kept, so that several runs in one file can be told apart.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence

from service.importers.rows import Account, Row, number, whole

NAME = "delimited"
STEP_COLUMNS = (
    "step",
    "_step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "iteration",
    "iter",
    "steps",
)
TIME_COLUMNS = ("_timestamp", "timestamp", "time", "wall_time", "wall time")


def recognise(head: Sequence[str]) -> str | None:
    """Why these first lines are a table, None if they are not."""
    lines = [line for line in head if line.strip()][:50]
    if not lines:
        return None
    delimiter = _delimiter(lines)
    names = _cells(lines[0], delimiter)
    named = not any(number(name) is not None for name in names) and len(_cells(lines[-1], delimiter)) <= len(names)
    if _step_column(names) is not None and len(names) > 1 and named:
        return f"a table whose first line names the column {names[_step_column(names) or 0]!r}"
    rows = [_cells(line, delimiter) for line in lines]
    if len(names) > 1 and all(len(row) == len(names) and all(number(c) is not None for c in row) for row in rows[:-1]):
        return "a table of numbers without column names" if whole(names[0]) is not None else None
    return None


def read(lines: Iterator[str], account: Account) -> Iterator[Row]:
    """Rows of a table, in its order."""
    first = next((line for line in _counted(lines, account) if line.strip()), "")
    sample = [first, *itertools.islice(lines, 20)]
    delimiter = _delimiter(sample)
    names = _cells(first, delimiter)
    step_at = _step_column(names)
    headless = step_at is None
    if headless:
        names, step_at = [f"column {number}" for number in range(1, len(names) + 1)], 0
    following = _counted(itertools.chain(sample[1:], lines), account)
    body = itertools.chain([first], following) if headless else following
    lower = [name.lower() for name in names]
    time_at = next((lower.index(name) for name in TIME_COLUMNS if name in lower), None)
    if lower.count("metric") == 1 and lower.count("value") == 1:
        account.sorted_by_metric = True
        yield from _long(body, delimiter, names, (step_at, lower.index("metric"), lower.index("value")), account)
        return
    columns = [
        (at, name)
        for at, name in enumerate(names)
        if at not in (step_at, time_at) and not name.endswith(("__MIN", "__MAX", " - _step"))
    ]
    for line in body:
        cells = _row(line, delimiter, len(names), account)
        step = whole(cells[step_at]) if cells else None
        if cells is None or step is None:
            continue
        time = number(cells[time_at]) if time_at is not None else None
        for at, name in columns:
            value = number(cells[at]) if cells[at] else None
            if value is not None:
                yield Row(step, name, value, time)


def _long(
    body: Iterator[str], delimiter: str, names: Sequence[str], at: tuple[int, int, int], account: Account
) -> Iterator[Row]:
    for line in body:
        cells = _row(line, delimiter, len(names), account)
        if cells is not None:
            step, value = whole(cells[at[0]]), number(cells[at[2]])
            if step is None or value is None or not cells[at[1]]:
                account.skip(account.lines)
            else:
                yield Row(step, cells[at[1]], value)


def _counted(lines: Iterator[str], account: Account) -> Iterator[str]:
    for line in lines:
        account.lines += 1
        yield line


def _row(line: str, delimiter: str, width: int, account: Account) -> list[str] | None:
    """The cells of a line, None (and counted) where their number is not the table's."""
    if not line.strip():
        return None
    cells = _cells(line, delimiter)
    if len(cells) == width:
        return cells
    if line.endswith(("\n", "\r")):
        account.skip(account.lines)
    else:
        account.truncated += 1
    return None


def _cells(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    try:
        cells: list[str] = next(csv.reader([line], delimiter=delimiter), [""])
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


def _delimiter(lines: Sequence[str]) -> str:
    """The first of tab, comma, semicolon that stands in the first line, else white space."""
    return next((mark for mark in "\t,;" if mark in lines[0]), " ")


def _step_column(names: Sequence[str]) -> int | None:
    lower = [name.lower() for name in names]
    return next((lower.index(name) for name in STEP_COLUMNS if name in lower), None)
