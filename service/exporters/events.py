"""TensorBoard event files: TFRecord frames of Event messages, values as `simple_value` (32-bit floats).

Written by their published formats (tensorflow/core/lib/io/record_writer.h, event.proto, summary.proto).
"""

from __future__ import annotations

import struct
import time
from typing import IO

import numpy as np

from service.exporters.run_series import RunSeries
from service.importers.crc32c import masked_crcs

VERSION = b"brain.Event:2"
AT_ONCE = 4096  # records


def write_tensorboard(series: RunSeries, out: IO[bytes]) -> int:
    """Write one event file; returns the number of points. Values are rounded to 32 bits, which is all that it holds."""
    count = 0
    now = time.time()
    records = [_field(3, VERSION, struct.pack("<Bd", 0x09, now))]
    tags = {name: _field(1, name.encode()) for name in series.names}
    for window in series.windows():
        for step, stamp, values in zip(window.steps, window.times, window.rows, strict=True):
            listed = np.array(list(values.values()))
            with np.errstate(over="ignore"):  # beyond a 32-bit float's range: infinity
                floats = listed.astype("<f4").tobytes()
            summary = b"".join(
                _field(1, tags[name] + b"\x15" + floats[4 * place : 4 * place + 4]) for place, name in enumerate(values)
            )
            head = struct.pack("<Bd", 0x09, now if stamp is None else stamp) + b"\x10" + _varint(step)
            records.append(_field(5, summary, head))
            count += len(values)
            if len(records) >= AT_ONCE:
                _put(out, records)
                records = []
    _put(out, records)
    return count


def _put(out: IO[bytes], records: list[bytes]) -> None:
    if not records:
        return
    sizes = [struct.pack("<Q", len(record)) for record in records]
    of_sizes, of_records = masked_crcs(sizes).tolist(), masked_crcs(records).tolist()
    for size, size_sum, record, record_sum in zip(sizes, of_sizes, records, of_records, strict=True):
        out.write(size + struct.pack("<I", size_sum) + record + struct.pack("<I", record_sum))


def _field(number: int, content: bytes, before: bytes = b"") -> bytes:
    return before + bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
