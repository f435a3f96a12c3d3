"""JSON lines: one object per line with a step and metrics; nested objects are joined by "/"."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import numpy as np

from service.importers.blocks import ROWS_AT_ONCE, Block, Column, Floats, Ints
from service.importers.formats import Format, Source
from service.importers.rows import EARLIEST, Account, Texts, plain, unix_seconds, whole
from service.importers.text import open_lines

NAME = "json_lines"
STEP_KEYS = ("_step", "step", "global_step", "train/global_step", "iteration", "iter")
TIME_KEYS = ("_timestamp", "timestamp", "time")
TWICE = "another value of the same name stands in the line"
# MaxText writes what an evaluation has so far after each of its batches, beside what it comes to in the end.
RUNNING_MARK = "eval/step_time_seconds"
RUNNING = "a running average within an evaluation, numbered by its batches and not by steps"
NOT_METRICS = {*STEP_KEYS, "_runtime", "_wandb"}


def recognise(head: Sequence[str]) -> str | None:
    """Why these first lines are JSON lines, None if they are not."""
    for line in head:
        if line.strip():
            found = _object(line)
            if found is not None and _step(found) is not None:
                return "JSON objects with a step, one per line"
    return None


def read(source: Source, account: Account) -> Iterator[Block]:
    """Blocks of the objects' numbers, in their order."""
    texts = Texts()
    with open_lines(source.path, source.progress) as lines:
        gathered = _Gathered(texts)
        for line in lines:
            account.lines += 1
            found = _object(line)
            if found is not None and RUNNING_MARK in found:
                account.refuse(
                    RUNNING, f"line {account.lines}", sum(name not in NOT_METRICS for name, _ in flat(found))
                )
            elif found is None or not gathered.add(found):
                _refuse(line, found, account)
            elif gathered.values >= ROWS_AT_ONCE:
                yield from gathered.blocks(account)
                gathered = _Gathered(texts)
        yield from gathered.blocks(account)
    texts.tell(account)


def _refuse(line: str, found: dict[str, Any] | None, account: Account) -> None:
    if found is None and line.strip() and not line.endswith("\n"):
        account.cut_off(account.lines)
    elif line.strip():
        account.skip(account.lines)


@dataclass(slots=True)
class _Shape:
    """Objects with the same keys and nothing but numbers: the lines they stand in, and their values in order."""

    stamp: str | None
    names: list[str]
    rows: list[int] = field(default_factory=list[int])
    values: list[list[float]] = field(default_factory=list[list[float]])


class _Gathered:
    """Lines of one block. Most have the keys of the line before, which are looked at once."""

    def __init__(self, texts: Texts) -> None:
        self.values = 0
        self._texts = texts
        self._steps: list[int] = []
        self._times: list[float | None] = []
        self._shapes: dict[tuple[str, ...], _Shape | None] = {}
        self._odd: list[tuple[int, dict[str, Any]]] = []  # lines that are no shape, or not this time

    def add(self, found: dict[str, Any]) -> bool:
        """Take one object; False if it has no step."""
        step = _step(found)
        if step is None or step < 0:
            return False
        keys = tuple(found)
        shape = self._shapes.get(keys, _NEW)
        if shape is _NEW:
            shape = self._shapes[keys] = _shape(found)
        row = len(self._steps)
        values = list(found.values())
        time = None if shape is None or shape.stamp is None else found[shape.stamp]
        plain_numbers = shape is not None and _NUMBERS.issuperset(map(type, values))
        if shape is None or not plain_numbers or not (time is None or EARLIEST < time < 1e11):
            stamps = (unix_seconds(found.get(key)) for key in TIME_KEYS)
            time = next((stamp for stamp in stamps if stamp is not None), None)
            self._odd.append((row, found))
        else:
            shape.rows.append(row)
            shape.values.append(values)
        self._steps.append(step)
        self._times.append(time)
        self.values += len(values)
        return True

    def blocks(self, account: Account) -> Iterator[Block]:
        """What was taken, as one block at most."""
        columns: dict[str, list[tuple[Ints, Floats]]] = {}
        for keys, shape in self._shapes.items():
            if shape is None or not shape.rows:
                continue
            try:
                table = np.array(shape.values, np.float64)
            except OverflowError:  # a whole number beyond what a float can be
                shapes = zip(shape.rows, shape.values, strict=True)
                self._odd += [(row, dict(zip(keys, values, strict=True))) for row, values in shapes]
                continue
            rows = np.array(shape.rows, np.int64)
            for name, column in zip(keys, table.T, strict=True):
                if name in shape.names:
                    columns.setdefault(name, []).append((rows, column))
        self._add_odd(columns, account)
        self._texts.numbers.update(columns)
        made = {name: _column(parts, len(self._steps)) for name, parts in columns.items()}
        if made:
            times = np.array(self._times, np.float64)
            timed = None if np.isnan(times).all() else times
            yield Block(np.array(self._steps, np.int64), made, timed)

    def _add_odd(self, columns: dict[str, list[tuple[Ints, Floats]]], account: Account) -> None:
        odd: dict[str, tuple[list[int], list[float]]] = {}
        for row, found in self._odd:
            stamps = {key for key in TIME_KEYS if unix_seconds(found.get(key)) is not None}
            for name, value in _cells(found):
                if name in NOT_METRICS or name in stamps:
                    continue
                rows, values = odd.setdefault(name, ([], []))
                number = plain(value)
                if number is None:
                    self._texts.count[name] += 1
                elif rows and rows[-1] == row:
                    account.refuse(TWICE, f"{name!r}")
                else:
                    rows.append(row)
                    values.append(number)
        for name, (rows, values) in odd.items():
            if rows:
                columns.setdefault(name, []).append((np.array(rows, np.int64), np.array(values, np.float64)))


def _column(parts: list[tuple[Ints, Floats]], count: int) -> Column:
    rows = np.concatenate([rows for rows, _ in parts])
    values = np.concatenate([values for _, values in parts])
    if len(parts) > 1:
        order = np.argsort(rows, kind="stable")
        rows, values = rows[order], values[order]
    return Column(values, None if len(rows) == count else rows)


def _shape(found: dict[str, Any]) -> _Shape | None:
    """The shape of an object of numbers, None where its numbers are to be looked for."""
    stamps = [key for key in TIME_KEYS if key in found]
    if len(stamps) > 1:
        return None
    names = [key for key in found if key not in NOT_METRICS and key not in stamps]
    return _Shape(stamps[0] if stamps else None, names)


def flat(found: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in an object, their names joined by "/"."""
    for name, value in _cells(found, prefix):
        if (number := plain(value)) is not None:
            yield name, number


def _cells(found: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and texts in an object; nothing (null), true, false and lists are no values."""
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _cells(cast("dict[str, Any]", value), f"{prefix}{key}/")
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            yield prefix + key, value


def _object(line: str) -> dict[str, Any] | None:
    try:
        found: Any = _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            found = json.loads(line)  # takes NaN and Infinity, which trackers write
        except (ValueError, RecursionError):
            return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _step(found: dict[str, Any]) -> int | None:
    step = next((found[key] for key in STEP_KEYS if found.get(key) is not None), None)
    return step if type(step) is int and 0 <= step <= 2**62 else whole(str(step))


_NUMBERS = frozenset((int, float))
_NEW = _Shape(None, [])
_decode = msgspec.json.Decoder().decode
FORMAT = Format(NAME, "JSON lines", lambda head: recognise(head.lines) if head.lines else None, read)
