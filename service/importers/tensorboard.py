"""TensorBoard event files: TFRecord frames of Event messages; scalars as `simple_value` and as tensors.

Read here by their published formats (tensorflow/core/lib/io/record_writer.h, event.proto, summary.proto, tensor.proto),
because every library that reads them brings TensorFlow or TensorBoard with it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from service.importers.blocks import Block, blocks_of
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
HEADER, FOOTER = struct.Struct("<QI"), struct.Struct("<I")


def recognise(head: Head) -> str | None:
    """Why a file is an event file, None if it is not."""
    if len(head.data) < HEADER.size:
        return None
    size, checksum = HEADER.unpack_from(head.data)
    found = size < LARGEST and int(masked_crcs([head.data[:8]])[0]) == checksum
    return "TFRecord frames (the first length's checksum is right)" if found else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """The scalars, in the file's order."""
    with open_bytes(source.path, source.progress) as data:
        yield from blocks_of(_rows(data, account), launch=source.path.name)


def _rows(data: IO[bytes], account: Account) -> Iterator[Row]:
    names: dict[str, str] = {}  # plugin of each tag, told with its first value alone
    for records in _records(data, account):
        for record in records:
            account.lines += 1
            try:
                yield from _scalars(record, names, account)
            except (WireError, UnicodeDecodeError, struct.error):
                account.refuse("the record is no Event", f"record {account.lines}")


def _records(data: IO[bytes], account: Account) -> Iterator[Sequence[bytes]]:
    """Whole records whose checksums are right, some thousand at once."""
    batch: list[tuple[bytes, int, bytes, int]] = []
    held = place = 0
    while True:
        header = data.read(HEADER.size)
        whole = len(header) == HEADER.size
        size, size_sum = HEADER.unpack(header) if whole else (0, 0)
        if whole and size > LARGEST:
            account.refuse("a record's length cannot be right; the rest is not read", f"record {place + 1}")
            break
        record = data.read(size) if whole else b""
        footer = data.read(FOOTER.size) if whole else b""
        if len(record) < size or (whole and len(footer) < FOOTER.size) or (header and not whole):
            account.truncated += 1
            account.refuse(CUT_OFF, f"record {place + 1}")
            break
        if not header:
            break
        batch.append((header[:8], size_sum, record, FOOTER.unpack(footer)[0]))
        held, place = held + size, place + 1
        if len(batch) >= AT_ONCE or held > 8 * 1024 * 1024:
            yield _checked(batch, account)
            batch, held = [], 0
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
