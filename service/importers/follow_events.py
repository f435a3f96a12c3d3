"""Following a folder of TensorBoard event files: whole records only, new files as they appear."""

from __future__ import annotations

import struct
from pathlib import Path

from service.importers import tensorboard
from service.importers.follow_source import Cursor, Fed, Parser
from service.importers.rows import LogError

PIECE = 2**20
HEADER = struct.Struct("<QI")
FOOTER_BYTES = 4


class EventsSource:
    """A TensorBoard folder (or one event file). A file that is new goes after those that were there before."""

    wait = 0.2
    format = tensorboard.NAME

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.resolve())
        self._parser = Parser()

    def read(self, cursor: Cursor | None) -> Fed | None:
        """The next whole records of the oldest file that has some.

        Raises:
            LogError: a file cannot be read, or is damaged.
        """
        offsets: dict[str, int] = dict(cursor["offsets"]) if cursor else {}
        for path in self._files():
            name = str(path.relative_to(self.path)) if path != self.path else path.name
            offset = offsets.get(name, 0)
            records = _whole_records(path, offset)
            if records:
                rows = self._parser.rows(self.format, records)
                offsets[name] = offset + len(records)
                return Fed(rows, {"offsets": offsets}, more=True)
        return None

    def _files(self) -> list[Path]:
        """Event files in order of the time in their names."""
        if self.path.is_file():
            return [self.path]
        found = [path for path in self.path.rglob("*tfevents*") if path.is_file()]
        return sorted(found, key=lambda path: (_stamp(path), str(path)))


def _stamp(path: Path) -> int:
    after = path.name.partition("tfevents.")[2].split(".")[0]
    return int(after) if after.isdigit() else 0


def _whole_records(path: Path, offset: int) -> bytes:
    """Records from `offset` on whose last byte is there, about PIECE bytes of them."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(PIECE)
            end = 0
            while end + HEADER.size <= len(content):
                size, _ = HEADER.unpack_from(content, end)
                after = end + HEADER.size + size + FOOTER_BYTES
                if size > tensorboard.LARGEST:
                    raise LogError(f"{path}: the record at byte {offset + end:,} is damaged; what follows is not read")
                if after > len(content):
                    more = file.read(max(after - len(content), PIECE)) if end == 0 else b""
                    content += more
                    if after > len(content):
                        break
                end = after
            return content[:end]
    except OSError as error:
        raise LogError(f"{path}: cannot be read ({error.strerror})") from error
