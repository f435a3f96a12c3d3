"""Following a text log: whole lines only, through rotation, truncation and rewriting."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO

from service.importers import delimited, key_value_log, olmo_core
from service.importers.detect import recognised
from service.importers.follow_source import Cursor, Fed, Parser
from service.importers.rows import LogError
from service.importers.text import BOMS, PACKED

PIECE = 2**20
LONGEST_LINE = 64 * 2**20
TAIL = 256  # bytes before the place that was read up to, by which a rewritten file is told
UNDECIDED = 65_536  # bytes of a log that may be of no known format before that is an error
LINE_FORMATS = ("json_lines", "maxtext_stdout", "delimited", "key_value_log", "deepspeed", "olmo_core")


class FileSource:
    """One text file, which may be rotated (renamed, with a new one in its place), truncated or written anew."""

    wait = 0.2

    def __init__(self, path: Path, format_name: str | None = None) -> None:
        self.path = path
        self.name = str(path.resolve())
        self._chosen = format_name
        self._parser = Parser()
        self.format = _followable(format_name) if format_name else ""

    def read(self, cursor: Cursor | None) -> Fed | None:
        """The next whole lines.

        Raises:
            LogError: it cannot be read, or its format cannot be followed.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return self._rest_of_rotated(cursor) if cursor else None
        except OSError as error:
            raise LogError(f"{self.path}: cannot be read ({error.strerror})") from error
        with file:
            fresh = cursor is not None and not _goes_on(file, cursor)
            if fresh and cursor is not None:
                rest = self._rest_of_rotated(cursor)
                if rest is not None:
                    return rest
            if cursor is None or fresh:
                cursor = {"inode": os.fstat(file.fileno()).st_ino, "offset": 0, "format": "", "context": ""}
            return self._piece(file, cursor, fresh)

    def _rest_of_rotated(self, cursor: Cursor) -> Fed | None:
        """What is left in the file that was read before, under the name it has now."""
        for path in sorted(self.path.parent.glob(f"{self.path.name}*")):
            try:
                with path.open("rb") as file:
                    if os.fstat(file.fileno()).st_ino == cursor["inode"] and _goes_on(file, cursor):
                        return self._piece(file, cursor, fresh=False)
            except OSError:
                continue
        return None

    def _piece(self, file: IO[bytes], cursor: Cursor, fresh: bool) -> Fed | None:
        lines = _whole_lines(file, cursor["offset"])
        if not lines:
            return None
        if cursor["offset"] == 0:
            _check_text(self.path, lines)
        format_name = cursor["format"] or self._recognised(cursor["offset"] + len(lines))
        if not format_name:
            return None
        self.format = format_name
        context: str = cursor["context"]
        end = len(lines) - _held_back(format_name, lines)
        if end == 0:
            return None
        lines = lines[:end]
        rows = self._parser.rows(format_name, context.encode() + lines)
        offset = cursor["offset"] + end
        following = {
            "inode": cursor["inode"],
            "offset": offset,
            "tail": _tail(file, offset),
            "format": format_name,
            "context": self._context(format_name, context, lines),
        }
        return Fed(rows, following, fresh, more=end >= PIECE // 2)

    def _recognised(self, size: int) -> str:
        """The format; "" while too little is there to tell."""
        if self._chosen:
            return _followable(self._chosen)
        try:
            name = recognised(self.path)[0].name
        except LogError:
            if size < UNDECIDED:
                return ""
            raise
        return _followable(name)

    def _context(self, format_name: str, before: str, lines: bytes) -> str:
        """The line that the next piece needs before it: a table's first, OLMo-core's last step."""
        if format_name == delimited.NAME:
            if before:
                return before
            head = next((line for line in lines.splitlines(keepends=True) if line.strip()), b"")
            # A first line that holds numbers is a row, which must not be read twice.
            return "" if self._parser.rows(format_name, head) else head.decode("utf-8", "replace")
        if format_name == olmo_core.NAME:
            marks = [line for line in lines.decode("utf-8", "replace").splitlines() if olmo_core.MARK.search(line)]
            return f"{marks[-1]}\n" if marks else before
        return ""


def _held_back(format_name: str, lines: bytes) -> int:
    """Bytes at the end that can only be understood with the line that is still to come."""
    if format_name != key_value_log.NAME:
        return 0
    held = 0
    for line in reversed(lines[-65_536:].splitlines(keepends=True)):
        if key_value_log.AHEAD.match(line.decode("utf-8", "replace")) is None:
            break
        held += len(line)
    return held


def _followable(name: str) -> str:
    if name not in LINE_FORMATS:
        known = ", ".join(LINE_FORMATS).replace("_", " ")
        raise LogError(
            f"{name.replace('_', ' ')} cannot be followed as it grows, only {known} and TensorBoard; "
            "when it is complete, `pacenote import` reads it"
        )
    return name


def _check_text(path: Path, head: bytes) -> None:
    if head.startswith(PACKED):
        raise LogError(f"{path}: a compressed file cannot be followed as it grows; `pacenote import` reads it")
    if any(head.startswith(mark) for mark, encoding in BOMS if encoding != "utf-8-sig") or b"\0" in head[:4096]:
        raise LogError(f"{path}: only UTF-8 text can be followed as it grows; `pacenote import` reads this")


def _whole_lines(file: IO[bytes], offset: int) -> bytes:
    """The next whole lines, about PIECE bytes of them; empty where no line has its end yet."""
    file.seek(offset)
    content = b""
    while len(content) < LONGEST_LINE:
        more = file.read(PIECE)
        content += more
        end = content.rfind(b"\n") + 1
        if end or not more:
            return content[:end]
    raise LogError(f"{file.name}: a line is longer than {LONGEST_LINE // 2**20} MiB; this is no log")


def _tail(file: IO[bytes], offset: int) -> str:
    start = max(offset - TAIL, 0)
    file.seek(start)
    return hashlib.blake2b(file.read(offset - start), digest_size=12).hexdigest()


def _goes_on(file: IO[bytes], cursor: Cursor) -> bool:
    """Whether the file is still the one that was read up to the cursor."""
    status = os.fstat(file.fileno())
    if status.st_ino != cursor["inode"] or status.st_size < cursor["offset"]:
        return False
    return "tail" not in cursor or _tail(file, cursor["offset"]) == cursor["tail"]
