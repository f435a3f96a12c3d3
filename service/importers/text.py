"""Bytes and lines of a log file, whatever its compression and encoding."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import zstandard

from service.importers.rows import LogError

CHUNK = 65536
LONGEST_LINE = 16 * 1024 * 1024  # characters; a longer one is read in pieces, which hold nothing known
BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PACKED = (GZIP, ZSTD)
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CONTROLS = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
DAMAGE = (OSError, EOFError, zlib.error, zstandard.ZstdError)
Progress = Callable[[int], None]


def no_progress(_count: int) -> None:
    """Nobody watches."""


@contextmanager
def open_bytes(path: Path, progress: Progress = no_progress) -> Generator[io.BufferedReader]:
    """The file's content; gzip and zstd are known by content. `progress` is told the bytes as they leave the disk.

    Raises:
        LogError: it cannot be opened, is a Git LFS pointer, or its compression is damaged (once reading comes to it).
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise LogError(f"{path}: a pipe or a device, which cannot be read twice; write it into a file first")
        raw = path.open("rb", buffering=0)
    except OSError as error:
        raise LogError(f"{path}: cannot be read ({error.strerror})") from error
    with raw:
        try:
            data = _decompressed(io.BufferedReader(_Metered(raw, progress), CHUNK * 4))
        except OSError as error:
            raise damaged(path, error) from error
        head = peek(path, data, 64)
        if head.startswith(b"version https://git-lfs"):
            raise LogError(
                f"{path}: this is a Git LFS pointer, not the file itself; run `git lfs pull` where it came from"
            )
        try:
            yield data
        except DAMAGE as error:  # from whatever reads it
            raise damaged(path, error) from error


@contextmanager
def unpacked(path: Path) -> Generator[Path]:
    """The file itself, or where it is compressed a copy that is not, as long as it is needed.

    For formats that are read by position: going back in compressed data would begin anew each time.

    Raises:
        LogError: as `open_bytes`, or there is no room for the copy.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(4).startswith(PACKED)
    except OSError as error:
        raise LogError(f"{path}: cannot be read ({error.strerror})") from error
    if not packed:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pacenote-unpacked-") as folder:
        copy = Path(folder) / "content"
        with copy.open("wb") as out, open_bytes(path) as data:
            while piece := data.read(CHUNK * 16):
                try:
                    out.write(piece)
                except OSError as error:
                    raise LogError(f"{path}: cannot be unpacked in {folder} ({error.strerror})") from error
        yield copy


@contextmanager
def open_text(path: Path, progress: Progress = no_progress) -> Generator[Text]:
    """The text of a file; bytes that are no text become U+FFFD, every kind of line end "\\n".

    Raises:
        LogError: no such file, no text, a Git LFS pointer, or damaged compression (once reading comes to it).
    """
    with open_bytes(path, progress) as data:
        yield Text(path, io.TextIOWrapper(data, encoding_of(path, data), errors="replace"))


@contextmanager
def open_lines(path: Path, progress: Progress = no_progress) -> Generator[Iterator[str]]:
    """Lines with their ends, otherwise as `open_text`."""
    with open_text(path, progress) as text:
        yield iter(text.line, "")


class Text:
    """Text that is read line by line, or in pieces. Damage of the file is a LogError."""

    def __init__(self, path: Path, text: io.TextIOWrapper) -> None:
        self._path, self._text = path, text

    def line(self) -> str:
        """The next line with its end, "" after the last."""
        try:
            line = self._text.readline(LONGEST_LINE)
            return _clean(line) if "\x1b" in line or "\0" in line else line
        except DAMAGE as error:
            raise self._damaged(error) from error

    def piece(self, size: int) -> str:
        """About `size` characters, "" at the end."""
        try:
            return self._text.read(size).replace("\0", "")
        except DAMAGE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException) -> LogError:
        return damaged(self._path, error)


def damaged(path: Path, error: BaseException) -> LogError:
    """What one of DAMAGE means: the disk or the network behind it fails, or the compression is damaged."""
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return LogError(f"{path}: cannot be read ({error.strerror or error})")
    return LogError(f"{path}: the compression is damaged or cut off ({error})")


def _clean(line: str) -> str:
    """A line without the colours of a terminal, and without the zeros a crashed machine leaves before what follows."""
    plain = COLOURS.sub("", line).replace("\0", "")
    return plain if plain.strip() else line


def peek(path: Path, data: io.BufferedReader, count: int = 4096) -> bytes:
    """The first bytes, without taking them.

    Raises:
        LogError: the compression is damaged.
    """
    try:
        return data.peek(count)[:count]
    except DAMAGE as error:
        raise damaged(path, error) from error


def encoding_of(path: Path, data: io.BufferedReader) -> str:
    """How the text is written.

    Raises:
        LogError: it is no text.
    """
    head = peek(path, data)
    for mark, encoding in BOMS:
        if head.startswith(mark):
            return encoding
    zeros = head[0::2].count(0), head[1::2].count(0)
    for few, many, encoding in ((*zeros, "utf-16-le"), (*reversed(zeros), "utf-16-be")):
        if head and many > len(head) // 3 and few < len(head) // 16:
            return encoding
    if b"\0" in head and not _is_text(head.replace(b"\0", b"")):
        raise LogError(f"{path}: this is not a text file")
    return "utf-8"


def _is_text(head: bytes) -> bool:
    """Whether bytes are text apart from the zeros between them: files of a machine that went down have such gaps."""
    return bool(head) and not CONTROLS.search(head) and head.decode("utf-8", "ignore").encode() == head


class _Metered(io.RawIOBase):
    """A file that tells how much of it was read."""

    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        self._file, self._progress = file, progress

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any, /) -> int:
        count: int = self._file.readinto(buffer)  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType,reportAttributeAccessIssue]
        self._progress(count)  # pyright: ignore[reportUnknownArgumentType]
        return count  # pyright: ignore[reportUnknownVariableType]


def _decompressed(file: io.BufferedReader) -> io.BufferedReader:
    magic = file.peek(4)[:4]
    if magic.startswith(GZIP):
        return io.BufferedReader(gzip.GzipFile(fileobj=file))
    if magic == ZSTD:
        return io.BufferedReader(_Zstd(file))
    return file


class _Zstd(io.RawIOBase):
    """Frames of zstd one after another; unlike the library's own reader it notices where the last one is cut off."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = b""
        self._within = False  # a frame that has begun

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready:
            data = self._frame.unused_data if self._frame.eof else self._file.read(CHUNK)
            if self._frame.eof:
                self._frame, self._within = zstandard.ZstdDecompressor().decompressobj(), False
                data = data or self._file.read(CHUNK)
            if not data:
                if self._within:
                    raise EOFError("a zstd frame has no end")
                return 0
            self._within = True
            self._ready = self._frame.decompress(data)
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count
