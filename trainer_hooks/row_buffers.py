"""Memory of row copies that were hashed, written again. In a loop that waits for a device every line is cold, and fresh
memory costs page faults: both cost a call more than the copy itself, so a call like the one before does little else."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_BYTES = 32 * 2**20  # kept between calls: a global batch of 512 rows × 8,192 tokens twice

Rows = NDArray[np.uint32]


class RowBuffers:
    """Copies of batches that nobody reads any more, all of one shape. One thread takes, another gives back; neither
    waits."""

    def __init__(self) -> None:
        self._free: deque[Rows] = deque()
        self._shape: tuple[int, ...] = ()
        self._dtype: Any = None

    def expect(self, rows: Any) -> None:
        """More arrays like this checked one may come."""
        array = np.asarray(rows)
        if array.shape != self._shape:  # what was kept fits no more
            self._free.clear()
        self._shape, self._dtype = array.shape, array.dtype

    def copy(self, rows: Any) -> Rows | None:
        """A copy of `rows` if it is as `expect` was told and memory is free, else None. The caller's alone until it is
        given back."""
        if type(rows) is not np.ndarray or rows.dtype != self._dtype:
            return None
        try:
            kept = self._free.pop()  # the newest, which may still be in a cache
        except IndexError:
            return None
        if kept.shape != rows.shape:
            return None
        kept[...] = rows  # modulo 2**32, as `snapshot` does
        return kept

    def give(self, copy: Rows) -> None:
        """Takes back a copy whose reader is done."""
        if copy.shape == self._shape and (len(self._free) + 1) * copy.nbytes <= MOST_BYTES:
            self._free.append(copy)
