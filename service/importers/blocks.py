"""Columnar blocks: what every importer yields, in the log's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.importers.rows import Row

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ROWS_AT_ONCE = 65_536


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
    builder, count = _Builder(), 0
    for row in rows:
        builder.add(row)
        count += 1
        if count >= size:
            yield builder.block(run, launch, in_time_order)
            builder, count = _Builder(), 0
    if count:
        yield builder.block(run, launch, in_time_order)


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
