"""Arrays that grow at their end, for what is read or worked out a little at a time."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", np.float64, np.int64, np.uint64, np.bool_)
SLACK = 1.25  # room that a new buffer gets, as a share of what it must hold
LEAST_ROOM = 256


class _Store(Generic[T]):
    __slots__ = ("buffer", "filled")

    def __init__(self, buffer: NDArray[T], filled: int) -> None:
        self.buffer, self.filled = buffer, filled


class Growing(Generic[T]):
    """An array (n,) that others are made from by appending. What was handed out before never changes: one that grows
    shares its memory with those before it, one that is cut and goes on otherwise gets memory of its own. So two arrays
    of one address agree as far as both go. Not for several threads at once."""

    __slots__ = ("_store", "array")

    def __init__(self, array: NDArray[T], _store: _Store[T] | None = None) -> None:
        self._store = _store or _Store(array, len(array))
        self.array = array

    def grown(self, keep: int, new: NDArray[T]) -> Growing[T]:
        """The first `keep` of these values, then `new` (m,)."""
        store, size = self._store, keep + len(new)
        if keep == len(self.array) and len(new) == 0:
            return self
        if keep != store.filled or size > len(store.buffer):
            buffer = np.empty(max(int(SLACK * size), LEAST_ROOM), dtype=self.array.dtype)
            buffer[:keep] = self.array[:keep]
            store = _Store(buffer, keep)
        store.buffer[keep:size] = new
        store.filled = size
        return Growing(store.buffer[:size], store)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory it stands in."""
        return self._store.buffer.nbytes

    def __len__(self) -> int:
        return len(self.array)


def same_bits(old: NDArray[T], new: NDArray[T]) -> int:
    """How many leading values two arrays of 8-byte numbers share, bit by bit (NaN equals NaN). At once where they stand
    at one address."""
    n = min(len(old), len(new))
    if old is new or n == 0 or _at_one_address(old, new):
        return n
    a = np.ascontiguousarray(old[:n]).view(np.int64)
    b = np.ascontiguousarray(new[:n]).view(np.int64)
    differ = a != b
    return int(np.argmax(differ)) if differ.any() else n


def _at_one_address(old: NDArray[T], new: NDArray[T]) -> bool:
    # Aligned numbers of 8 bytes overlap only where they are one; to read the addresses takes numpy seven times as long.
    return old.strides == new.strides and np.may_share_memory(old[:1], new[:1])
