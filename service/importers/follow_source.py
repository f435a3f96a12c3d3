"""What `pacenote follow` reads from: something that grows, read a piece at a time from where the last piece ended."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from service.importers.blocks import rows_of
from service.importers.detect import FORMATS
from service.importers.formats import Source
from service.importers.rows import Account, Row

Cursor = dict[str, Any]  # plain JSON; only the source that made it understands it


@dataclass(frozen=True, slots=True)
class Fed:
    """One piece: its rows in the log's order, and where the next piece begins.

    `fresh`: the log began anew before these rows (rotated, truncated, rewritten), as when a trainer starts again.
    `more`: there may be more to read at once. `beside`: they were written while other rows of the log were, so that a
    step that falls is no new start.
    """

    rows: list[Row]
    cursor: Cursor
    fresh: bool = False
    more: bool = False
    beside: bool = False


class FollowSource(Protocol):
    """A growing log. `wait` is how long to leave it alone, in seconds, when it has nothing new."""

    wait: float

    @property
    def name(self) -> str:
        """What it is, in words that stay the same: a path or an address."""
        ...

    @property
    def format(self) -> str:
        """The log's format, by which its names are understood; "" until that is known."""
        ...

    def read(self, cursor: Cursor | None) -> Fed | None:
        """The piece after `cursor` (None: from the beginning); None if there is nothing new."""
        ...


@dataclass(slots=True)
class Parser:
    """Reads pieces of a log with the importers' readers, each piece as a small file of its own."""

    folder: tempfile.TemporaryDirectory[str] = field(default_factory=lambda: tempfile.TemporaryDirectory("-pacenote"))

    def rows(self, format_name: str, content: bytes) -> list[Row]:
        """The rows of a piece that begins and ends with a whole line or record."""
        path = Path(self.folder.name) / "piece"
        path.write_bytes(content)
        return list(self._rows(format_name, path))

    def _rows(self, format_name: str, path: Path) -> Iterator[Row]:
        for block in FORMATS[format_name].read(Source(path), Account()):
            yield from rows_of(block)
