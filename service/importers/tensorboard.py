"""TensorBoard event files: TFRecord frames of Event messages; scalars as `simple_value` and as tensors.

Read here by their published formats (tensorflow/core/lib/io/record_writer.h, event.proto, summary.proto, tensor.proto),
because every library that reads them brings TensorFlow or TensorBoard with it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from service.importers.blocks import Block, block_of
from service.importers.crc32c import masked_crcs
from service.importers.formats import Format, Head, Source
from service.importers.protobuf import BYTES, FIXED32, FIXED64, VARINT, WireError, fields
from service.importers.rows import CUT_OFF, Account, Row
from service.importers.text import open_bytes

NAME = "tensorboard"
LARGEST = 256 * 1024 * 1024
AT_ONCE = 8192  # records
DAMAGED = "the record's checksum is wrong"
NO_SCALAR = "not a scalar"
DTYPES: dict[int, Any] = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 19: np.float16}
PIECE = 1024 * 1024
HEADER, FOOTER = struct.Struct("<QI"), struct.Struct("<I")
SINGLE, DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def recognise(head: Head) -> str | None:
    """Why a file is an event file, None if it is not."""
    if len(head.data) < HEADER.size:
        return None
    size, checksum = HEADER.unpack_from(head.data)
    found = size < LARGEST and int(masked_crcs([head.data[:8]])[0]) == checksum
    return "TFRecord frames (the first length's checksum is right)" if found else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """The scalars, in the file's order."""
    scalars = Scalars(account)
    with open_bytes(source.path, source.progress) as data:
        for records in _records(data, account):
            block = scalars.block(records, source.path.name)
            if block is not None:
                yield block


def _records(data: IO[bytes], account: Account) -> Iterator[Sequence[bytes]]:
    """Whole records whose checksums are right, some thousand at once."""
    batch: list[tuple[bytes, int, bytes, int]] = []
    held = place = at = 0
    buffer = data.read(PIECE)
    while True:
        if at + HEADER.size > len(buffer):
            buffer, at = buffer[at:] + data.read(PIECE), 0
        if len(buffer) - at < HEADER.size:
            break
        size, size_sum = HEADER.unpack_from(buffer, at)
        if size > LARGEST:
            account.refuse("a record's length cannot be right; the rest is not read", f"record {place + 1}")
            buffer = b""
            break
        end = at + HEADER.size + size + FOOTER.size
        if end > len(buffer):
            buffer = buffer[at:] + data.read(max(PIECE, end - len(buffer)))
            at, end = 0, end - at
            if end > len(buffer):
                break
        record = buffer[at + HEADER.size : end - FOOTER.size]
        batch.append((buffer[at : at + 8], size_sum, record, FOOTER.unpack_from(buffer, end - FOOTER.size)[0]))
        held, place, at = held + size, place + 1, end
        if len(batch) >= AT_ONCE or held > 8 * 1024 * 1024:
            yield _checked(batch, account)
            batch, held = [], 0
    if len(buffer) > at:
        account.truncated += 1
        account.refuse(CUT_OFF, f"record {place + 1}")
    if batch:
        yield _checked(batch, account)


def _checked(batch: Sequence[tuple[bytes, int, bytes, int]], account: Account) -> list[bytes]:
    sizes, contents = masked_crcs([one[0] for one in batch]), masked_crcs([one[2] for one in batch])
    good: list[bytes] = []
    for (_, size_sum, record, record_sum), size, content in zip(batch, sizes.tolist(), contents.tolist(), strict=True):
        if size == size_sum and content == record_sum:
            good.append(record)
        else:
            account.refuse(DAMAGED, f"record {account.lines + len(good) + 1}")
    return good


class Scalars:
    """Takes scalars out of records.

    Most records differ from an earlier one of their tag in time, step and the bytes of a number at their end alone.
    So what stands between step and number is remembered, and such records are not walked through again.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._plugins: dict[str, str] = {}  # of each tag, told with its first value alone
        self._known: tuple[dict[bytes, str], dict[bytes, str]] = ({}, {})  # what stands before 4, and 8, bytes

    def block(self, records: Iterable[bytes], launch: str) -> Block | None:
        """The scalars of some records in their order, None if there are none."""
        singles, doubles = self._known
        steps: list[int] = []
        tags: list[str] = []
        values: list[float] = []
        times: list[float | None] = []
        for record in records:
            self._account.lines += 1
            step, at = _step(record)
            tag = singles.get(record[at:-4])
            if tag is not None:
                values.append(SINGLE.unpack_from(record, len(record) - 4)[0])
            else:
                tag = doubles.get(record[at:-8])
                if tag is None:
                    for row in self._walk(record, at):
                        steps.append(row.step)
                        tags.append(row.metric)
                        values.append(row.value)
                        times.append(row.time)
                    continue
                values.append(DOUBLE.unpack_from(record, len(record) - 8)[0])
            steps.append(step)
            tags.append(tag)
            times.append(DOUBLE.unpack_from(record, 1)[0])
        return block_of(steps, tags, values, times, launch=launch) if steps else None

    def _walk(self, record: bytes, at: int) -> list[Row]:
        try:
            rows = list(_scalars(record, self._plugins, self._account))
        except (WireError, UnicodeDecodeError, struct.error):
            self._account.refuse("the record is no Event", f"record {self._account.lines}")
            return []
        if len(rows) == 1 and at and rows[0][::3] == (_step(record)[0], DOUBLE.unpack_from(record, 1)[0]):
            for known, number in zip(self._known, (SINGLE, DOUBLE), strict=True):
                if self._ends_in(record, number):
                    known[record[at : -number.size]] = rows[0].metric
                    break
        return rows

    def _ends_in(self, record: bytes, number: struct.Struct) -> bool:
        """Whether the last bytes are the number alone: with others in their place, that is what is read."""
        for probe in (-1.375, 2.0e30):
            made = record[: -number.size] + number.pack(probe)
            try:
                found = [row.value for row in _scalars(made, dict(self._plugins), Account())]
            except (WireError, UnicodeDecodeError, struct.error):
                return False
            if found != list(number.unpack(number.pack(probe))):
                return False
        return True


def _step(record: bytes) -> tuple[int, int]:
    """The step of a record that begins with its time and its step, and where the rest begins; 0, 0 for every other."""
    if len(record) < 24 or record[0] != 0x09 or record[9] != 0x10:
        return 0, 0
    step = shift = 0
    for at in range(10, 19):  # of no more than 63 bits
        step |= (record[at] & 0x7F) << shift
        if record[at] < 0x80:
            return (step, at + 1) if step < 2**62 else (0, 0)
        shift += 7
    return 0, 0


def _scalars(record: bytes, names: dict[str, str], account: Account) -> Iterator[Row]:
    step, time, summary = 0, None, b""
    for number, kind, value, content in fields(record):
        if number == 1 and kind == FIXED64:
            time = struct.unpack("<d", content)[0]
        elif number == 2 and kind == VARINT:
            step = value
        elif number == 5 and kind == BYTES:
            summary = content
    for number, kind, _, content in fields(summary):
        if number != 1 or kind != BYTES:
            continue
        tag, scalar = _value(content, names)
        if scalar is None or step >= 2**62:
            account.refuse(NO_SCALAR if step < 2**62 else "a step below 0", f"tag {tag!r}")
        else:
            yield Row(step, tag, scalar, time)


def _value(content: bytes, names: dict[str, str]) -> tuple[str, float | None]:
    tag, scalar, tensor = "", None, b""
    for number, kind, _, inner in fields(content):
        if number == 1 and kind == BYTES:
            tag = inner.decode("utf-8")
        elif number == 2 and kind == FIXED32:
            scalar = float(struct.unpack("<f", inner)[0])
        elif number == 8 and kind == BYTES:
            tensor = inner
        elif number == 9 and kind == BYTES:
            names.setdefault(tag, _plugin(inner))
    if scalar is None and tensor and names.get(tag, "scalars") == "scalars":
        scalar = _tensor(tensor)
    return tag, scalar


def _plugin(metadata: bytes) -> str:
    for number, kind, _, content in fields(metadata):
        if number == 1 and kind == BYTES:
            for inner, inner_kind, _, name in fields(content):
                if inner == 1 and inner_kind == BYTES:
                    return name.decode("utf-8", errors="replace")
    return "scalars"


def _tensor(content: bytes) -> float | None:
    """The number of a tensor of one element, None for every other."""
    dtype, raw, sizes, values = 0, b"", 1, b""
    varint: int | None = None
    for number, kind, value, inner in fields(content):
        if number == 1 and kind == VARINT:
            dtype = value
        elif number == 2 and kind == BYTES:
            for _, dim_kind, _, dim in fields(inner):
                if dim_kind == BYTES:
                    sizes *= next((size for n, k, size, _ in fields(dim) if n == 1 and k == VARINT), 0)
        elif number == 4 and kind == BYTES:
            raw = inner
        elif number in (5, 6):
            values = inner
        elif number in (7, 10, 13):
            varint = value if kind == VARINT else next(iter(_packed(inner)), None)
    if dtype not in DTYPES or sizes != 1:
        return None
    width = np.dtype(DTYPES[dtype]).itemsize
    if len(raw) == width:
        return float(np.frombuffer(raw, DTYPES[dtype])[0])
    if dtype in (1, 2) and len(values) == width:
        return float(np.frombuffer(values, DTYPES[dtype])[0])
    if varint is None:
        return None
    if dtype == 19:
        return float(np.array([varint & 0xFFFF], np.uint16).view(np.float16)[0])
    return float(varint - 2**64 if varint >= 2**63 else varint)


def _packed(content: bytes) -> Iterator[int]:
    # A packed list of varints reads as the varint fields of a message whose keys are all the same.
    for byte in re.findall(rb"[\x80-\xff]*[\x00-\x7f]", content):
        yield sum((part & 0x7F) << (7 * place) for place, part in enumerate(byte))


FORMAT = Format(NAME, "TensorBoard event files", recognise, read, together="launches")
