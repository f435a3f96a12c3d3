"""Finds the logs in a folder, and which files are one run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from service.importers.blocks import Block
from service.importers.checkpoint_steps import step_in
from service.importers.detect import recognised
from service.importers.formats import Format, Source
from service.importers.rows import Account, LogError
from service.importers.text import Progress, no_progress

_CHECKPOINT = re.compile(r"[-_.]?(?:global[-_]?step|step|iteration|iter|checkpoint|ckpt)[-_=]?\d+.*$", re.IGNORECASE)
LARGEST_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one format that are read together. `name` is what the run is called where the log does not say.

    `origin` is the address they came from, if they came over the network.
    """

    format: Format
    because: str
    name: str
    paths: list[Path]
    origin: str = ""

    @property
    def place(self) -> str:
        """Where the log is, for messages."""
        return self.origin or str(self.paths[0])

    def read(
        self, account: Account, progress: Progress = no_progress, tokens_per_step: float | None = None
    ) -> Iterator[Block]:
        """The blocks of every file in turn."""
        many = len(self.paths) > 1
        for path in self.paths:
            for block in self.format.read(Source(path, progress, tokens_per_step), account):
                if self.format.together == "checkpoints":
                    yield replace(block, in_time_order=False)
                else:
                    yield replace(block, launch=block.launch or path.name) if many else block

    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for path in self.paths for file in self._files(path))

    def digest(self, options: Iterable[str]) -> bytes:
        """32 bytes that tell this content, read with these options, from every other."""
        made = hashlib.blake2b(digest_size=32)
        for text in (self.format.name, *options):
            made.update(f"{len(text)}:{text}".encode())
        for path in self.paths:
            for file in self._files(path):
                made.update(file.relative_to(path).as_posix().encode() if file != path else b"")
                with file.open("rb") as content:
                    while piece := content.read(LARGEST_PIECE):
                        made.update(piece)
        return made.digest()

    def _files(self, path: Path) -> list[Path]:
        return (self.format.files or _files)(path)


@dataclass(frozen=True, slots=True)
class Found:
    """What a path holds: groups to import, and files that were refused, each with its reason."""

    groups: list[Group]
    refused: list[tuple[Path, str]] = field(default_factory=list[tuple[Path, str]])


def find(path: Path, chosen: str | None = None) -> Found:
    """The logs at a path; `chosen` is the format that goes before what is found.

    Raises:
        LogError: a file that cannot be imported; or a folder without any log.
    """
    if not path.is_dir():
        format_, because = recognised(path, chosen)
        return Found([Group(format_, because, _name(path), [path])])
    try:
        format_, because = recognised(path, chosen)
        if format_.files is not None:  # a store of many runs
            return Found([Group(format_, because, path.resolve().name, [path])])
    except LogError:
        pass  # its files are looked at one by one
    groups: dict[tuple[str, Path, str], Group] = {}
    refused: list[tuple[Path, str]] = []
    for file in _files(path):
        try:
            format_, because = recognised(file, chosen)
        except LogError as error:
            refused.append((file, str(error).removeprefix(f"{file}: ")))
            continue
        folder, name = _home(file, format_)
        group = groups.setdefault((format_.name, folder, name), Group(format_, because, name, []))
        group.paths.append(file)
    if not groups:
        why = f"; {refused[0][0].name}: {refused[0][1]}" if refused else ""
        raise LogError(f"{path}: no log was found in this folder{why}")
    return Found(list(groups.values()), refused)


def _home(file: Path, format_: Format) -> tuple[Path, str]:
    """The folder and the name that files of one run share."""
    if format_.together == "launches":
        return file.parent, file.parent.name
    if format_.together == "checkpoints":
        stem = _CHECKPOINT.sub("", file.name)
        if stem != file.name:
            return file.parent, stem.strip("-_. ") or file.parent.name
        home = file.parent.parent if step_in(file.parent.name) is not None else file.parent
        return home, home.name
    if format_.name == "hf_trainer" and file.parent.name.startswith("checkpoint-"):
        return file.parent.parent, file.parent.parent.name
    return file, _name(file)


def _name(path: Path) -> str:
    return path.name.split(".")[0] or path.name


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted((file for file in path.rglob("*") if file.is_file()), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sorts numbers in names by their value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d{1,18})", str(path))]
