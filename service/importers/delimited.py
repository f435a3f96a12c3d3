"""Tables: CSV, TSV, semicolons or white space, with any column names.

A wide table has one column per metric; a long one has columns `step, metric, value`. Empty cells are no value, "NaN" is
a value. The ranges that W&B puts beside each curve of its charts (`…__MIN`, `…__MAX`) are left out; the run's name
before " - " tells several runs in one file apart.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import chain, islice
from typing import Any

from service.importers.blocks import Block
from service.importers.formats import HEAD_LINES, Format, Head, Source
from service.importers.layout import layout_of, numbered, step_column
from service.importers.rows import Account, LogError, number, whole
from service.importers.tables import Tables
from service.importers.text import Text, open_text

pa: Any = import_module("pyarrow")  # have no types
pa_csv: Any = import_module("pyarrow.csv")

NAME = "delimited"
BATCH_BYTES = 1024 * 1024
BATCH_LINES = 20_000
PIECE = 256 * 1024
DECIMAL_COMMA = re.compile(r"[+-]?\d+,(?:\d{1,2}|\d{4,})(?:[eE][+-]?\d+)?")


def recognise(head: Head) -> str | None:
    """Why a file is a table, None if it is not."""
    lines = [line for line in head.lines if line.strip()][:80]
    lines = uncommented(lines)[1][:50]
    if not lines:
        return None
    delimiter = delimiter_of(lines)
    names = cells_of(lines[0], delimiter)
    step = step_column(names)
    rows = [cells_of(line, delimiter) for line in lines]
    if step is not None and len(names) > 1 and _fits(rows, step):
        return f"a table whose first line names the column {names[step]!r}"
    if len(names) > 1 and all(len(row) == len(names) and all(number(c) is not None for c in row) for row in rows[:-1]):
        return "a table of numbers without column names" if whole(names[0]) is not None else None
    return None


def uncommented(lines: Sequence[str]) -> tuple[int, list[str]]:
    """A table without the comments (`# …`) above it, and how many there were; the last of them may name the columns."""
    above = next((at for at, line in enumerate(lines) if not line.lstrip().startswith("#")), 0)
    if not above:
        return 0, list(lines)
    named = lines[above - 1].lstrip().removeprefix("#").lstrip()
    mark = delimiter_of(lines[above:] or [""])
    names = cells_of(named, mark)
    if step_column(names) is not None and len(names) == len(cells_of(lines[above], mark)):
        return above - 1, [named, *lines[above:]]
    return above, list(lines[above:])


def _fits(rows: list[list[str]], step: int) -> bool:
    """Whether a line below the names has as many cells, and a whole number where steps are counted."""
    return len(rows) == 1 or any(len(row) == len(rows[0]) and whole(row[step]) is not None for row in rows[1:])


def read(source: Source, account: Account) -> Iterator[Block]:
    """Rows of a table, in its order.

    Raises:
        LogError: the table cannot be taken apart.
    """
    with open_text(source.path, source.progress) as text:
        head = list(islice(iter(text.line, ""), HEAD_LINES))
        first = next((at for at, line in enumerate(head) if line.strip()), 0)
        above, sample = uncommented(head[first:])
        first += above
        delimiter = delimiter_of(sample or [""])
        names = cells_of(sample[0], delimiter) if sample else []
        if not names:
            return
        layout = layout_of(names)
        account.lines += first
        if layout is None:
            layout = numbered(len(names))
        else:
            account.lines += 1
            sample = sample[1:]
        comma = delimiter == ";" and any(
            DECIMAL_COMMA.fullmatch(cell) for line in sample for cell in cells_of(line, delimiter)
        )
        tables = Tables(layout, account, decimal_comma=comma)
        if delimiter == " ":
            batches = _spaced(chain(sample, iter(text.line, "")), len(layout.names), account)
        else:
            batches = _split(_Stream("".join(sample), text), delimiter, len(layout.names), account)
        for arrays in batches:
            yield from tables.blocks(arrays)
        tables.finish()


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of one line, without quotes and the white space around them."""
    if delimiter == " ":
        return line.split()
    try:
        cells: list[str] = next(csv.reader([line], delimiter=delimiter), [""])
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


def delimiter_of(lines: Sequence[str]) -> str:
    """The first of tab, semicolon, comma, bar that stands in the first line, else white space."""
    return next((mark for mark in "\t;,|" if mark in lines[0]), " ")


def _spaced(lines: Iterator[str], width: int, account: Account) -> Iterator[list[Any]]:
    while batch := list(islice(lines, BATCH_LINES)):
        rows: list[list[str]] = []
        for line in batch:
            account.lines += 1
            cells = line.split()
            if len(cells) == width:
                rows.append(cells)
            elif cells:
                _refuse(account, account.lines, line.endswith("\n"))
        if rows:
            yield [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]


def _split(stream: _Stream, delimiter: str, width: int, account: Account) -> Iterator[list[Any]]:
    names, before = [str(at) for at in range(width)], account.lines
    invalid: list[tuple[int, str]] = []

    def keep(row: Any) -> str:
        if row.text.strip():
            invalid.append((before + (row.number or 0), row.text))
        return "skip"

    try:
        reader = pa_csv.open_csv(
            stream,
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=BATCH_BYTES, column_names=names),
            parse_options=pa_csv.ParseOptions(delimiter=delimiter, invalid_row_handler=keep),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
            ),
        )
        for batch in reader:
            yield list(batch.columns)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" not in str(error):
            raise LogError(f"the table cannot be taken apart: {str(error).splitlines()[0][:200]}") from error
    account.lines += stream.lines
    for place, (line, content) in enumerate(invalid, 1):
        _refuse(account, line, stream.ended or place < len(invalid) or not stream.last.endswith(content[-200:]))


def _refuse(account: Account, line: int, whole_line: bool) -> None:
    """Count a line whose number of cells is not the table's."""
    if whole_line:
        account.skip(line)
    else:
        account.cut_off(line)


class _Stream(io.RawIOBase):
    """Text as a stream of UTF-8. `ended`: the last line had its end."""

    def __init__(self, first: str, text: Text) -> None:
        self._text = text
        self._ready = first.encode("utf-8", errors="replace")
        self.lines, self.last, self.ended = first.count("\n"), first[-4096:], first.endswith("\n")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while len(self._ready) < len(buffer):
            piece = self._text.piece(PIECE)
            if not piece:
                break
            self.lines += piece.count("\n")
            self.last, self.ended = piece[-4096:], piece.endswith("\n")
            self._ready += piece.encode("utf-8", errors="replace")
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


FORMAT = Format(NAME, "table: CSV, TSV, semicolons, white space", recognise, read)
