"""Tables with one row per run: W&B's runs table, summaries of ablations. Each row is a run's last values."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from service.importers.blocks import Block, blocks_of
from service.importers.delimited import cells_of, delimiter_of
from service.importers.formats import Format, Head, Source
from service.importers.rows import NO_STEP, Account, LogError, Row, Texts, number, step_of_tokens, whole
from service.importers.text import open_lines

NAME = "runs_table"
NAME_COLUMNS = ("name", "run_name", "run", "run name", "id", "model")
STEP_COLUMNS = (
    "_step",
    "step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "steps",
    "total_steps",
    "max_steps",
    "max_iters",
    "iterations",
)
TOKEN_COLUMNS = ("tokens", "train_tokens", "total_tokens")
SUFFIX = re.compile(r"(\d+)([kmbt])(\d*)", re.IGNORECASE)
POWERS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def recognise(head: Head) -> str | None:
    """Why a table has one row per run, None if it has not."""
    lines = [line for line in head.lines if line.strip()]
    if len(lines) < 2 or ("," not in lines[0] and "\t" not in lines[0]):
        return None
    delimiter = delimiter_of(lines)
    names = [name.lower() for name in cells_of(lines[0], delimiter)]
    if not names or names[0] not in NAME_COLUMNS or {"metric", "value"} <= set(names):
        return None
    firsts = [cells_of(line, delimiter)[0] for line in lines[1:200] if cells_of(line, delimiter)]
    distinct = len(set(firsts)) == len(firsts) and not any(number(text) is not None for text in firsts if text)
    return f"a table with one row per {names[0]!r}, no name comes twice" if distinct else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """A run per row, its numbers at its last step.

    Raises:
        LogError: no column tells the step.
    """
    with open_lines(source.path, source.progress) as lines:
        first = next(lines, "")
        delimiter = delimiter_of([first])
        names = cells_of(first, delimiter)
        account.lines += 1
        step = _step_column(names, source)
        account.note("one row per run: each number stands at its run's last step")
        texts = Texts()
        for cells in _cells(lines, delimiter, source):
            account.lines += 1
            if len(cells) != len(names):
                if cells:
                    account.skip(account.lines)
                continue
            yield from blocks_of(_row(names, cells, step, source, account, texts), run=cells[0].strip())
        texts.tell(account)


def _cells(lines: Iterator[str], delimiter: str, source: Source) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines, delimiter=delimiter)
    except csv.Error as error:
        raise LogError(f"{source.path}: the table cannot be taken apart ({error})") from error


def _row(
    names: Sequence[str], cells: Sequence[str], step_at: int, source: Source, account: Account, texts: Texts
) -> Iterator[Row]:
    step = _step(names[step_at], cells[step_at], source)
    for place, (name, cell) in enumerate(zip(names, cells, strict=True)):
        if place in (0, step_at) or not cell.strip():
            continue
        value = number(cell)
        if value is None:
            texts.count[name] += 1
            continue
        texts.numbers.add(name)
        if step is None or step < 0:
            account.refuse(NO_STEP, f"line {account.lines}")
        else:
            yield Row(step, name, value)


def _step_column(names: Sequence[str], source: Source) -> int:
    lower = [name.lower() for name in names]
    found = next((lower.index(name) for name in STEP_COLUMNS if name in lower), None)
    tokens = next((place for place, name in enumerate(lower) if name in TOKEN_COLUMNS), None)
    if found is not None:
        return found
    if tokens is not None and source.steps_at is not None:
        return tokens
    hint = "it has tokens: say --tokens-per-step" if tokens is not None else f"name one {', '.join(STEP_COLUMNS[:3])}"
    raise LogError(f"{source.path}: one row per run, and no column tells the step its values are of; {hint}")


def _step(name: str, cell: str, source: Source) -> int | None:
    if "tokens" not in name.lower() or source.steps_at is None:
        return whole(cell)
    tokens = number(cell)
    short = SUFFIX.fullmatch(cell.strip())
    if tokens is None and short is not None:  # "100m", "1b5": 1.5 billion
        tokens = float(f"{short[1]}.{short[3] or 0}") * POWERS[short[2].lower()]
    return step_of_tokens(tokens, source.steps_at)


FORMAT = Format(NAME, "table with one row per run", recognise, read)
