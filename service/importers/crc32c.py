"""CRC-32C (Castagnoli) of many short byte strings at once, as TFRecord files carry it, masked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

POLYNOMIAL = 0x82F63B78
MASK_DELTA = 0xA282EAD8


def _make_table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


_TABLE = _make_table()
_LIST: list[int] = _TABLE.tolist()
FEW = 8  # fewer strings than this of one length go one by one


def masked_crcs(strings: Sequence[bytes]) -> Words:
    """The masked CRC of each string; strings of one length are worked on together."""
    found = np.zeros(len(strings), np.uint32)
    lengths = np.array([len(string) for string in strings], np.int64)
    for length in set(lengths.tolist()):
        places = np.flatnonzero(lengths == length)
        chosen = [strings[place] for place in places.tolist()]
        if len(chosen) < FEW:
            found[places] = [_crc(string) for string in chosen]
            continue
        content = np.frombuffer(b"".join(chosen), np.uint8).reshape(len(chosen), -1)
        found[places] = _crcs(content)
    rotated = (found >> np.uint32(15)) | (found << np.uint32(17))
    return rotated + np.uint32(MASK_DELTA)


def _crc(string: bytes) -> int:
    crc, table = 0xFFFFFFFF, _LIST
    for byte in string:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crcs(content: NDArray[np.uint8]) -> Words:
    crc = np.full(len(content), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(content.T):
        crc = _TABLE[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)
