"""The table of formats, and what a format is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from service.importers.blocks import Block, blocks_of
from service.importers.rows import Account, LogError, Row
from service.importers.text import Progress, encoding_of, no_progress, open_bytes, open_lines, peek

HEAD_BYTES = 65_536
HEAD_LINES = 2000


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file: its first bytes (decompressed), and its first lines where it is text."""

    path: Path
    data: bytes
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Source:
    """One file (or a store in a folder) to read. `progress` is told how many bytes left the disk."""

    path: Path
    progress: Progress = no_progress
    steps_at: float | None = None  # tokens per step, for logs that count tokens alone


@dataclass(frozen=True, slots=True)
class Format:
    """One format: how it is recognised (the reason in words, or None) and read.

    `together` says what several of its files in one folder are: "launches" of one run, "checkpoints" of one run, or
    "" where each is a run of its own. `files` are those of a store in a folder that hold its runs (None: all).
    """

    name: str
    title: str
    recognise: Callable[[Head], str | None]
    read: Callable[[Source, Account], Iterator[Block]]
    together: str = ""
    files: Callable[[Path], list[Path]] | None = None


def line_format(
    name: str,
    title: str,
    recognise: Callable[[list[str]], str | None],
    read: Callable[[Iterator[str], Account], Iterator[Row]],
) -> Format:
    """A format of text lines that is read row by row."""

    def blocks(source: Source, account: Account) -> Iterator[Block]:
        with open_lines(source.path, source.progress) as lines:
            yield from blocks_of(read(lines, account))

    return Format(name, title, lambda head: recognise(head.lines) if head.lines else None, blocks)


def read_head(path: Path) -> Head:
    """The beginning of a file.

    Raises:
        LogError: it cannot be read, is empty, or its compression is damaged.
    """
    with open_bytes(path) as data:
        first = peek(path, data, HEAD_BYTES)
        try:
            encoding_of(path, data)
        except LogError:
            return Head(path, first, [])
    with open_lines(path) as lines:
        head = list(islice(lines, HEAD_LINES))
    if not any(line.strip() for line in head):
        raise LogError(f"{path}: the file is empty")
    return Head(path, first, head)
