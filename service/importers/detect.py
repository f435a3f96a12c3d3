"""Finds a log's format by its content, and says by what."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.importers import (
    aim,
    deepspeed,
    delimited,
    hf_trainer,
    json_lines,
    key_value_log,
    lm_eval,
    maxtext_stdout,
    megatron_golden,
    mlflow,
    olmes,
    olmo_core,
    parquet,
    runs_table,
    tensorboard,
    trackio,
)
from service.importers.blocks import Block, rows_of
from service.importers.formats import Format, Head, Source, read_head
from service.importers.rows import Account, LogError, Row
from service.importers.sqlite_files import MAGIC as SQLITE

# In this order: the more particular first.
FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        tensorboard.FORMAT,
        aim.FORMAT,
        mlflow.STORE,
        mlflow.DATABASE,
        trackio.DATABASE,
        parquet.FORMAT,
        hf_trainer.FORMAT,
        megatron_golden.FORMAT,
        lm_eval.FORMAT,
        lm_eval.AGGREGATE,
        olmes.FORMAT,
        json_lines.FORMAT,
        maxtext_stdout.FORMAT,
        olmo_core.FORMAT,
        runs_table.FORMAT,
        delimited.FORMAT,
        deepspeed.FORMAT,
        key_value_log.FORMAT,
    )
}


@dataclass(frozen=True, slots=True)
class Log:
    """An open log: its format, by what it was recognised, its rows, and an account that fills as they are read."""

    format: str
    because: str
    rows: Iterator[Row]
    account: Account


def recognised(path: Path, chosen: str | None = None) -> tuple[Format, str]:
    """The format of a file, or of a store in a folder, and why; `chosen` goes before what is found.

    Raises:
        LogError: it cannot be read, is empty, there is no format of that name, or none fits.
    """
    if chosen is not None:
        if chosen not in FORMATS:
            raise LogError(f"--format: there is no format {chosen!r}; there are {', '.join(FORMATS)}")
        if path.is_file():
            read_head(path)
        return FORMATS[chosen], "you said so"
    head = Head(path, b"", []) if path.is_dir() else read_head(path)
    for one in FORMATS.values():
        because = one.recognise(head)
        if because is not None:
            return one, because
    raise LogError(f"{path}: no known format; {_hint(head)}")


def _hint(head: Head) -> str:
    """What is most likely the matter, and what to do."""
    path = head.path
    if path.name == "meta.yaml" or path.parent.name in ("tags", "params"):
        return "this looks like a part of MLflow's file store: import the folder mlruns"
    if path.is_dir():
        return "this is a folder that is no store of Aim's or MLflow's"
    if head.data.startswith(SQLITE):
        return "a SQLite file without the tables of MLflow or Trackio"
    if (
        head.data.startswith((b"PK\x03\x04", b"7z\xbc\xaf", b"BZh", b"\xfd7zXZ", b"Rar!"))
        or head.data[257:262] == b"ustar"
    ):
        return "this is an archive: unpack it and import what is in it"
    if not head.lines and head.data:
        return "this is not a text file"
    first = next(line.strip() for line in head.lines if line.strip())
    if first.lower().startswith(("<!doctype html", "<html")):
        return "this is a web page: download the file itself (its raw address)"
    if first.startswith(("{", "[")):
        return "JSON with a step in each line, or a document of a known tool, is expected (docs/importing.md)"
    if any(mark in first for mark in ",;\t"):
        return f"a table needs a column that counts steps, named step or iteration: its first line is `{first[:60]}`"
    return f"no line like `step 10: loss 3.2` was found (docs/importing.md lists the formats): it begins `{first[:60]}`"


@contextmanager
def open_log(path: Path) -> Generator[Log]:
    """Open a log of any known format, to be read row by row.

    Raises:
        LogError: it cannot be read, is empty, or none of the formats fits.
    """
    format_, because = recognised(path)
    account = Account()
    blocks = format_.read(Source(path), account)
    yield Log(format_.name, because, (row for block in blocks for row in rows_of(_marked(block, account))), account)


def _marked(block: Block, account: Account) -> Block:
    account.sorted_by_metric = account.sorted_by_metric or not block.in_time_order
    return block
