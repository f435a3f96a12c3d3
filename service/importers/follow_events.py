"""Following a folder of TensorBoard event files: whole records only, new files as they appear."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.importers import tensorboard
from service.importers.follow_source import Cursor, Fed, Parser
from service.importers.rows import LogError, Row

PIECE = 2**20
HEADER = struct.Struct("<QI")
FOOTER_BYTES = 4


class EventsSource:
    """A TensorBoard folder (or one event file). A file that is new goes after those that were there before.

    Steps that fall from one file to the next are a new start of the trainer if that file began after all that was read
    of the others. A file that began before another one ended comes of a second writer of the same start. Where that
    shows only later, because the older file grows again, everything is read anew. (TensorBoard itself drops what lies
    beyond such a step by the order of steps alone, file by file.)

    The cursor: `offsets`, `began` (what `_began` says) and `times` (of the first and last value) of each file, `steps`
    maps tags to their last step and its file, `starts` are files that were taken for new starts.
    """

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
        read = cursor or {}
        offsets: dict[str, int] = dict(read.get("offsets", {}))
        began: dict[str, float] = dict(read.get("began", {}))
        spans: dict[str, list[float]] = dict(read.get("times", {}))
        for path in self._files():
            name = str(path.relative_to(self.path)) if path != self.path else path.name
            anew = name in offsets and _written_anew(path, offsets[name], began.get(name))
            if anew:
                offsets[name] = 0
                spans.pop(name, None)
            offset = offsets.get(name, 0)
            records = _whole_records(path, offset)
            if not records:
                continue
            rows = self._parser.rows(self.format, records)
            offsets[name] = offset + len(records)
            began.setdefault(name, _began(path))
            if anew:
                began[name] = _began(path)
            times = [row.time for row in rows if row.time is not None]
            if times:
                first, last = spans.get(name, (times[0], times[0]))
                spans[name] = [first, max(last, *times)]
            starts: list[str] = list(read.get("starts", []))
            if any(_began_within(start, name, spans) for start in starts):
                return Fed([], {"offsets": {}, "times": spans}, fresh=True, more=True)
            beside = not anew and _beside(name, spans)
            steps, falls = _after(rows, name, read.get("steps", {}))
            if falls and not beside and name not in starts:
                starts.append(name)
            following = {"offsets": offsets, "began": began, "times": spans, "steps": steps, "starts": starts}
            return Fed(rows, following, fresh=anew, more=True, beside=beside)
        return None

    def _files(self) -> list[Path]:
        """Event files in order of the time of their first record, else of that in their names."""
        if self.path.is_file():
            return [self.path]
        found = [path for path in self.path.rglob("*tfevents*") if path.is_file()]
        return sorted(found, key=lambda path: (_began(path), str(path)))


def _began(path: Path) -> float:
    try:
        with path.open("rb") as file:
            head = file.read(HEADER.size + 9)
    except OSError:
        head = b""
    if len(head) == HEADER.size + 9 and head[HEADER.size] == 0x09:  # an Event begins with its time
        return float(struct.unpack_from("<d", head, HEADER.size + 1)[0])
    return float(_stamp(path))


def _beside(name: str, spans: Mapping[str, Sequence[float]]) -> bool:
    """Whether a file began before another one ended, as far as they were read."""
    return name in spans and any(other != name and spans[name][0] <= end for other, (_, end) in spans.items())


def _began_within(name: str, older: str, spans: Mapping[str, Sequence[float]]) -> bool:
    """Whether a file began while an older one was being written."""
    known = name != older and name in spans and older in spans
    return known and spans[older][0] <= spans[name][0] <= spans[older][1]


def _written_anew(path: Path, offset: int, began: float | None) -> bool:
    """Whether a file that was read up to `offset` has been replaced under its name, or cut short."""
    try:
        size = path.stat().st_size
    except OSError:
        return False
    return size < offset or (size > 0 and began is not None and _began(path) != began)


def _after(
    rows: Sequence[Row], name: str, steps: Mapping[str, Sequence[Any]]
) -> tuple[dict[str, tuple[int, str]], bool]:
    """The last step of each tag and its file after these rows, and whether one fell below that of another file."""
    after: dict[str, tuple[int, str]] = {tag: (int(step), str(file)) for tag, (step, file) in steps.items()}
    falls = False
    for row in rows:
        before, file = after.get(row.metric, (row.step, name))
        falls = falls or (row.step < before and file != name)
        after[row.metric] = (row.step, name)
    return after, falls


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
