"""What is read over the network, kept in a file until it is imported: one value a line."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from service.importers import delimited
from service.importers.blocks import Block
from service.importers.folders import Group
from service.importers.formats import Format, Source
from service.importers.rows import Account

COLUMNS = ("run", "launch", "step", "metric", "value", "timestamp")


class LongTable:
    """A CSV file that grows. `values` counts its lines, `refused` what the sender gave and no line can hold."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values = 0
        self.refused: Counter[str] = Counter()
        self.notes: list[str] = []
        self._file = path.open("w", encoding="utf-8", newline="")
        self._lines = csv.writer(self._file)
        self._lines.writerow(COLUMNS)

    def __enter__(self) -> LongTable:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def add(self, run: str, launch: str, step: int, metric: str, value: float, time: float | None) -> None:
        """Keep one value; `time` in unix seconds."""
        named = (_line(run), _line(launch), step, _line(metric))
        self._lines.writerow((*named, repr(value), "" if time is None else repr(time)))
        self.values += 1

    def group(self, format_name: str, title: str, because: str, name: str) -> Group:
        """The table as a log of the format it was read from."""

        def read(source: Source, account: Account) -> Iterator[Block]:
            for sentence in self.notes:
                account.note(sentence)
            for reason, count in self.refused.items():
                account.refuse(reason, name, count)
            yield from delimited.read(source, account)

        return Group(Format(format_name, title, lambda _: None, read), because, name, [self.path])


def _line(text: str) -> str:
    """A name on one line."""
    return " ".join(text.split())
