"""Hashes as they are stored: those of rows have no structure, those of chosen windows lead with zeros."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.series.packing import compress, decompress_ints

Hashes = NDArray[np.uint64]


def pack(kind: str, hashes: Hashes) -> bytes:
    """uint64 (n,) as bytes: windows by pcodec, all others little endian."""
    if kind == "windows":
        return compress(hashes.view(np.int64))
    return hashes.astype("<u8").tobytes()


def unpack(kind: str, packed: bytes) -> Hashes:
    """What was packed."""
    if kind == "windows":
        return decompress_ints(packed).view(np.uint64)
    return np.frombuffer(packed, np.uint64)
