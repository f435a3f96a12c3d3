"""The spool on disk: its record format, and reading it back (docs/wire.md, "Spool").

A spool is the numbered part files of one process of one segment, `<segment>.<process>.<part>.spool`; there is a second
part only after 256 MiB. Every part begins with the segment record. A record is a frame: length and CRC32 of the
payload (two little-endian uint32), then the payload, JSON: `{"n":…,"kind":…,"segment":…,"process":…,"body":B}` with B
last, so that it can be cut out and sent without being parsed.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from trainer_hooks.stores import Store

SUFFIX = ".spool"
MAX_PAYLOAD = 16 * 2**20
_FRAME = struct.Struct("<II")
_PAYLOAD_START = b'{"n":'
_BODY = b',"body":'
_SEARCH_BYTES = 2**20

Read = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Record:
    """One request to the service. `number` counts the records of a process in a segment; 0 is the segment itself."""

    number: int
    kind: str
    segment: str
    process: int
    body: bytes

    def frame(self) -> bytes:
        """The record as it stands in a spool."""
        head = json.dumps(
            {"n": self.number, "kind": self.kind, "segment": self.segment, "process": self.process},
            separators=(",", ":"),
        )
        payload = head[:-1].encode() + _BODY + self.body + b"}"
        return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def parse(payload: bytes) -> Record:
    """The record of a payload. Raises ValueError or KeyError if it is none."""
    cut = payload.index(_BODY)
    head = json.loads(payload[:cut] + b"}")
    return Record(head["n"], head["kind"], head["segment"], head["process"], payload[cut + len(_BODY) : -1])


class Found(NamedTuple):
    """A record, the offset just after it, and how many damaged bytes were passed over before it."""

    record: Record | None
    after: int
    damaged: int


def read_record(read: Read, offset: int, end: int) -> Found:
    """The first whole record at or after `offset`; `record` is None if there is none before `end`."""
    record, after = _whole_record(read, offset, end)
    if record is not None or offset >= end:
        return Found(record, after, 0)
    # Damaged: the next whole record begins 8 bytes before a payload's first bytes.
    at = offset + 1
    while at < end:
        window = read(at, _SEARCH_BYTES + len(_PAYLOAD_START))
        hit = window.find(_PAYLOAD_START)
        if hit < 0:
            at += _SEARCH_BYTES
            continue
        start = at + hit - _FRAME.size
        if start > offset:
            record, after = _whole_record(read, start, end)
            if record is not None:
                return Found(record, after, start - offset)
        at += hit + 1
    return Found(None, end, end - offset)


def _whole_record(read: Read, offset: int, end: int) -> tuple[Record | None, int]:
    frame = read(offset, _FRAME.size)
    if len(frame) < _FRAME.size:
        return None, end
    length, checksum = _FRAME.unpack(frame)
    after = offset + _FRAME.size + length
    if length > MAX_PAYLOAD or after > end:
        return None, end
    payload = read(offset + _FRAME.size, length)
    if len(payload) != length or zlib.crc32(payload) != checksum:
        return None, end
    try:
        return parse(payload), after
    except (ValueError, KeyError):
        return None, end


class Spool(NamedTuple):
    """The name of all parts of one process of one segment."""

    segment: str
    process: int

    def part(self, index: int) -> str:
        """The file name of a part."""
        return f"{self.segment}.{self.process}.{index:06d}{SUFFIX}"

    def side(self, suffix: str) -> str:
        """The name of a file beside the parts: `sent` (what was acknowledged) or `rejected.jsonl`."""
        return f"{self.segment}.{self.process}.{suffix}"


def split_name(name: str) -> tuple[Spool, int] | None:
    """Spool and part number of a file name, or None if it is no part of a spool."""
    pieces = name.removesuffix(SUFFIX).split(".")
    if not name.endswith(SUFFIX) or len(pieces) != 3 or not (pieces[1].isdigit() and pieces[2].isdigit()):
        return None
    return Spool(pieces[0], int(pieces[1])), int(pieces[2])


@dataclass(slots=True)
class Position:
    """How far a spool was acknowledged: all records up to `number`; the next one is in `part`, not before `offset`."""

    part: int = 0
    offset: int = 0
    number: int = -1


def load_position(store: Store, spool: Spool, address: str) -> Position:
    """How far `address` acknowledged the spool; the beginning if that is not known."""
    try:
        saved = json.loads(store.get(spool.side("sent")) or b"{}").get(address)
        return Position(int(saved["part"]), int(saved["offset"]), int(saved["number"])) if saved else Position()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Position()


def save_position(store: Store, spool: Spool, address: str, position: Position) -> None:
    """Remembers how far `address` acknowledged the spool, beside what other addresses did. Raises OSError."""
    try:
        saved = json.loads(store.get(spool.side("sent")) or b"{}")
    except ValueError:
        saved = {}
    saved[address] = {"part": position.part, "offset": position.offset, "number": position.number}
    store.put(spool.side("sent"), json.dumps(saved, indent=1).encode())


class Cursor:
    """Reads the parts of a spool in order, leaving out what was acknowledged.

    `ends` maps part numbers to the offset up to which they may be read; its owner may change it between calls.
    `growing`: a torn end of the last part is what is being written, and is read again later.
    """

    def __init__(
        self, store: Store, spool: Spool, position: Position, ends: dict[int, int], growing: bool = False
    ) -> None:
        self.store = store
        self.spool = spool
        self.position = position
        self.damaged_bytes = 0
        self.damaged_places = 0
        self.missing: set[int] = set()  # parts that are no longer there
        self._ends = ends
        self._growing = growing
        self._found: Found | None = None
        self._read: tuple[int, Read] | None = None

    def peek(self) -> Record | None:
        """The next record that is not acknowledged; the same one until it is."""
        while self._found is None and (part := self._current_part()) is not None:
            end = self._ends[part]
            try:
                found = read_record(self._reader(part), self.position.offset, end)
            except FileNotFoundError:  # removed by hand, or by another process that kept the spools under their cap
                self.missing.add(part)
                found = Found(None, end, 0)
            if found.record is None and found.damaged and self._growing and part == max(self._ends):
                return None
            if found.damaged:
                self.damaged_bytes += found.damaged
                self.damaged_places += 1
            if found.record is None or found.record.number <= self.position.number:
                self.position.offset = found.after
            else:
                self._found = found
        return self._found.record if self._found is not None else None

    def holds(self, part: int) -> bool:
        """Whether the part is open here, and so readable even if its file is removed."""
        return self._read is not None and self._read[0] == part

    def acknowledge(self, number: int) -> None:
        """Leaves out all records up to `number` from now on."""
        self.position.number = max(self.position.number, number)
        if self._found is not None and self._found.record is not None and self._found.record.number <= number:
            self.position.offset = self._found.after
            self._found = None

    def _current_part(self) -> int | None:
        """The part with something left to read, from the position on."""
        for part in sorted(self._ends):
            if part < self.position.part:
                continue
            if part > self.position.part:
                self.position.part, self.position.offset = part, 0
            if self.position.offset < self._ends[part]:
                return part
        return None

    def _reader(self, part: int) -> Read:
        if self._read is None or self._read[0] != part:
            self._read = (part, self.store.reader(self.spool.part(part)))
        return self._read[1]


def part_ends(store: Store) -> dict[Spool, dict[int, int]]:
    """Every spool of a store with the sizes of its parts, the longest untouched first."""
    spools: dict[Spool, dict[int, int]] = {}
    for entry in sorted(store.list(), key=lambda entry: (entry.modified, entry.name)):
        named = split_name(entry.name)
        if named is not None:
            spools.setdefault(named[0], {})[named[1]] = entry.size
    return spools
