"""Columnar blocks: what every importer yields, in the log's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.importers.rows import Row

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ROWS_AT_ONCE = 65_536
ROWS_AT_HAND = 1024  # few enough to be gone before the garbage collector looks at them


class Column(NamedTuple):
    """One metric's values (m,); `rows` (m,) are the ascending rows of the block they stand in, None: all of them."""

    values: Floats
    rows: Ints | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of one run's log.

    `steps` (n,) is the log's own count, `times` (n,) unix seconds (NaN where unknown) or None. `run` is what the log
    calls the run ("" where it holds one without a name); `launch` names one start of the trainer, where the log tells.
    `in_time_order` is False where rows are sorted otherwise: then a falling step means nothing.
    """

    steps: Ints
    columns: dict[str, Column]
    times: Floats | None = None
    run: str = ""
    launch: str = ""
    in_time_order: bool = True

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def points(self) -> int:
        """How many values it holds."""
        return sum(len(column.values) for column in self.columns.values())

    def part(self, first: int, last: int) -> Block:
        """Rows `first` to `last` (exclusive)."""
        columns: dict[str, Column] = {}
        for name, (values, rows) in self.columns.items():
            if rows is None:
                columns[name] = Column(values[first:last])
                continue
            low, high = np.searchsorted(rows, [first, last])
            if low < high:
                columns[name] = Column(values[low:high], rows[low:high] - first)
        times = None if self.times is None else self.times[first:last]
        return Block(self.steps[first:last], columns, times, self.run, self.launch, self.in_time_order)

    def steps_of(self, name: str) -> Ints:
        """The steps (m,) of one metric's values."""
        rows = self.columns[name].rows
        return self.steps if rows is None else self.steps[rows]


@dataclass(slots=True)
class _Builder:
    """Gathers rows one by one, where a metric has several values at one step."""

    steps: list[int] = field(default_factory=list[int])
    times: list[float] = field(default_factory=list[float])
    timed: bool = False
    columns: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict[str, tuple[list[int], list[float]]])

    def add(self, row: Row) -> None:
        # Values of one step that follow each other share a row.
        step, metric, value, time = row
        at = len(self.steps) - 1
        column = self.columns.get(metric)
        if column is None:
            column = self.columns[metric] = ([], [])
        if at < 0 or self.steps[at] != step or (column[0] and column[0][-1] == at):
            at += 1
            self.steps.append(step)
            self.times.append(float("nan") if time is None else time)
        elif time is not None and self.times[at] != self.times[at]:
            self.times[at] = time
        self.timed = self.timed or time is not None
        column[0].append(at)
        column[1].append(value)

    def block(self, run: str, launch: str, in_time_order: bool) -> Block:
        count = len(self.steps)
        columns = {
            name: Column(np.array(values, np.float64), None if len(rows) == count else np.array(rows, np.int64))
            for name, (rows, values) in self.columns.items()
        }
        times = np.array(self.times, np.float64) if self.timed else None
        return Block(np.array(self.steps, np.int64), columns, times, run, launch, in_time_order)


def blocks_of(
    rows: Iterable[Row], *, run: str = "", launch: str = "", in_time_order: bool = True, size: int = ROWS_AT_ONCE
) -> Iterator[Block]:
    """Rows gathered into blocks of about `size` values. Steps must be from 0 to 2**62."""
    rows = iter(rows)
    steps, metrics, values, times = _lists()
    while some := list(islice(rows, ROWS_AT_HAND)):
        parts = zip(*some, strict=True)
        for gathered, part in zip((steps, metrics, values, times), parts, strict=True):
            gathered.extend(part)
        if len(steps) >= size:
            yield block_of(steps, metrics, values, times, run=run, launch=launch, in_time_order=in_time_order)
            steps, metrics, values, times = _lists()
    if steps:
        yield block_of(steps, metrics, values, times, run=run, launch=launch, in_time_order=in_time_order)


def _lists() -> tuple[list[int], list[str], list[float], list[float | None]]:
    return [], [], [], []


def block_of(
    steps: Sequence[int],
    metrics: Sequence[str],
    values: Sequence[float],
    times: Sequence[float | None],
    *,
    run: str = "",
    launch: str = "",
    in_time_order: bool = True,
) -> Block:
    """One block of (n,) values in the log's order. Values of one step that follow each other share a row."""
    places = {name: place for place, name in enumerate(dict.fromkeys(metrics))}
    codes = np.fromiter(map(places.__getitem__, metrics), np.int64, len(metrics))
    counted = np.array(steps, np.int64)
    at = np.concatenate([[0], np.cumsum(counted[1:] != counted[:-1])])
    order = np.argsort(codes, kind="stable")
    sorted_codes, sorted_rows = codes[order], at[order]
    if ((sorted_codes[1:] == sorted_codes[:-1]) & (sorted_rows[1:] == sorted_rows[:-1])).any():  # a step comes again
        builder = _Builder()
        for row in map(Row, steps, metrics, values, times):
            builder.add(row)
        return builder.block(run, launch, in_time_order)
    count = int(at[-1]) + 1
    found, bounds = np.array(values, np.float64)[order], np.searchsorted(sorted_codes, np.arange(len(places) + 1))
    columns: dict[str, Column] = {}
    for name, place in places.items():
        mine = slice(bounds[place], bounds[place + 1])
        rows = sorted_rows[mine]
        columns[name] = Column(found[mine], None if len(rows) == count else rows)
    firsts = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1]]))
    return Block(counted[firsts], columns, _times(times, at, count), run, launch, in_time_order)


def _times(times: Sequence[float | None], at: Ints, count: int) -> Floats | None:
    """The first time of each row, None where none is known."""
    told = np.array(times, np.float64)  # None becomes NaN
    known = np.flatnonzero(~np.isnan(told))
    if not len(known):
        return None
    rows, firsts = np.unique(at[known], return_index=True)
    found = np.full(count, np.nan)
    found[rows] = told[known[firsts]]
    return found


def rows_of(block: Block) -> Iterator[Row]:
    """The block's values one by one, row by row; a run's name stands before the metric's, as W&B writes it."""
    prefix = f"{block.run} - " if block.run else ""
    at: list[list[tuple[str, float]]] = [[] for _ in range(len(block))]
    for name, (values, rows) in block.columns.items():
        places = range(len(block)) if rows is None else rows.tolist()
        for row, value in zip(places, values.tolist(), strict=True):
            at[row].append((prefix + name, value))
    times = None if block.times is None else block.times.tolist()
    for row, step in enumerate(block.steps.tolist()):
        time = None if times is None or times[row] != times[row] else times[row]
        for name, value in at[row]:
            yield Row(step, name, value, time)
