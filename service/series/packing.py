"""pcodec with types: arrays of numbers to few bytes and back, bit for bit."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

_pcodec: Any = import_module("pcodec.standalone")
# The last level before the time doubles for less than 1 % of the bytes.
_CONFIG: Any = import_module("pcodec").ChunkConfig(compression_level=4)


def compress(numbers: NDArray[np.int64] | NDArray[np.float64]) -> bytes:
    """A one-dimensional array as bytes."""
    packed: bytes = _pcodec.simple_compress(np.ascontiguousarray(numbers), _CONFIG)
    return packed


def decompress_ints(packed: bytes) -> NDArray[np.int64]:
    """The int64 array that was compressed."""
    numbers: NDArray[np.int64] | None = _pcodec.simple_decompress(packed)
    return np.empty(0, np.int64) if numbers is None else numbers


def decompress_floats(packed: bytes) -> NDArray[np.float64]:
    """The float64 array that was compressed."""
    numbers: NDArray[np.float64] | None = _pcodec.simple_decompress(packed)
    return np.empty(0, np.float64) if numbers is None else numbers


def decompress_into(packed: bytes, place: NDArray[np.int64] | NDArray[np.float64]) -> None:
    """Write the array that was compressed into a contiguous array of its type and length."""
    _pcodec.simple_decompress_into(packed, place)
