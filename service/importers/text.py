"""Lines of a log file, whatever its compression and encoding."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import zstandard

from service.importers.rows import LogError

CHUNK = 65536
BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@contextmanager
def open_lines(path: Path) -> Generator[Iterator[str]]:
    """Lines with their ends; gzip and zstd are known by content. Bytes that are no text become U+FFFD.

    Raises:
        LogError: no such file, no text, a Git LFS pointer, or damaged compression (once reading comes to it).
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise LogError(f"{path}: cannot be read ({error.strerror})") from error
    with file:
        data = _decompressed(file)
        encoding = _encoding(path, data)
        yield _checked(path, io.TextIOWrapper(data, encoding, errors="replace"))


def _decompressed(file: IO[bytes]) -> io.BufferedReader:
    magic = file.read(4)
    file.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return io.BufferedReader(gzip.GzipFile(fileobj=file))
    if magic == b"\x28\xb5\x2f\xfd":
        return io.BufferedReader(_Zstd(file))
    return io.BufferedReader(file)  # pyright: ignore[reportArgumentType]


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


def _encoding(path: Path, data: io.BufferedReader) -> str:
    try:
        head = data.peek(4096)[:4096]
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise LogError(f"{path}: the compression is damaged ({error})") from error
    if head.startswith(b"version https://git-lfs"):
        raise LogError(f"{path}: this is a Git LFS pointer, not the file itself; run `git lfs pull` where it came from")
    for mark, encoding in BOMS:
        if head.startswith(mark):
            return encoding
    if head and head[1::2].count(0) > len(head) // 3:
        return "utf-16-le"
    if b"\0" in head:
        raise LogError(f"{path}: this is not a text file")
    return "utf-8"


def _checked(path: Path, lines: io.TextIOWrapper) -> Iterator[str]:
    try:
        yield from lines
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise LogError(f"{path}: the compression is damaged or cut off ({error})") from error
