"""Finds a log's format by its content, and says by what."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.importers import delimited, json_lines, key_value_log, maxtext_stdout
from service.importers.rows import Account, LogError, Row
from service.importers.text import open_lines

HEAD_LINES = 2000
Reader = Callable[[Iterator[str], Account], Iterator[Row]]
Recogniser = Callable[[Sequence[str]], str | None]
# In this order: the more particular first.
FORMATS: dict[str, tuple[Recogniser, Reader]] = {
    json_lines.NAME: (json_lines.recognise, json_lines.read),
    maxtext_stdout.NAME: (maxtext_stdout.recognise, maxtext_stdout.read),
    delimited.NAME: (delimited.recognise, delimited.read),
    key_value_log.NAME: (key_value_log.recognise, key_value_log.read),
}


@dataclass(frozen=True, slots=True)
class Log:
    """An open log: its format, by what it was recognised, its rows, and an account that fills as they are read."""

    format: str
    because: str
    rows: Iterator[Row]
    account: Account


@contextmanager
def open_log(path: Path) -> Generator[Log]:
    """Open a log of any known format.

    Raises:
        LogError: it cannot be read, is empty, or none of the formats fits.
    """
    with open_lines(path) as lines:
        head = list(itertools.islice(lines, HEAD_LINES))
        if not any(line.strip() for line in head):
            raise LogError(f"{path}: the file is empty")
        for name, (recognise, read) in FORMATS.items():
            because = recognise(head)
            if because is not None:
                account = Account()
                yield Log(name, because, read(itertools.chain(head, lines), account), account)
                return
    known = ", ".join(FORMATS).replace("_", " ")
    raise LogError(f"{path}: no known format (known: {known}); a table needs a column named step")
