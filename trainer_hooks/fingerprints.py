"""Sampled fingerprints of the rows a process feeds to the model (docs/wire.md, "Row hash").

The hash of a row is BLAKE2b of 8 bytes over its tokens as little-endian uint32. It is kept only if its number, the
digest read big-endian, is a multiple of `sample`: equal rows are so always sampled together, wherever they are read,
and the share of repeats among the sampled rows is an unbiased estimate of the share among all.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 8


def snapshot(rows: Any, max_bytes: int = 2**62) -> NDArray[np.uint32]:
    """A private copy of `rows`, any integer array (batch, length), as C-ordered little-endian uint32.

    Tokens are taken modulo 2**32, so -1 becomes 4294967295. Raises ValueError for another shape or dtype,
    or for a copy of more than `max_bytes`.
    """
    array = np.asarray(rows)
    if array.ndim != 2:
        raise ValueError(f"rows must have shape (batch, length), not {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"rows must hold integers, not {array.dtype}")
    if array.size * 4 > max_bytes:
        raise ValueError(f"rows of {array.size * 4:,} bytes are too many for one call; at most {max_bytes:,}")
    return np.array(array, dtype="<u4", order="C", copy=True)


def row_hashes(rows: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """The hash of every row of a `snapshot`, uint64 (batch,).

    BLAKE2b has no vectorised form, so this is one hashlib call per row (0.03 ms for 8,192 tokens); hashlib releases the
    interpreter lock for rows of more than 511 tokens.
    """
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(row, digest_size=DIGEST_BYTES).digest() for row in rows])
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def sampled(hashes: NDArray[np.uint64], sample: int) -> list[str]:
    """The hashes that are multiples of `sample`, in row order, as 16 hex digits each."""
    kept = hashes[hashes % np.uint64(sample) == 0]
    return [f"{int(number):016x}" for number in kept]


class RowsRecord:
    """Collects the readings of one host until they are written as the body of one `fingerprints` record."""

    def __init__(self, host: int, sample: int) -> None:
        self.host = host
        self.sample = sample
        self.steps: list[int] = []
        self.hashes: list[str] = []
        self._rows_of_step: dict[int, int] = {}

    def add(self, step: int, rows: NDArray[np.uint32]) -> None:
        """Takes the rows (batch, length) read at `step`; a step may come in several pieces."""
        kept = sampled(row_hashes(rows), self.sample)
        self.steps.extend([step] * len(kept))
        self.hashes.extend(kept)
        self._rows_of_step[step] = self._rows_of_step.get(step, 0) + len(rows)

    def body(self) -> dict[str, Any]:
        """The wire body but for process and seq; `seen` holds inclusive runs [first step, last step, rows per step]."""
        seen: list[list[int]] = []
        for step, rows in sorted(self._rows_of_step.items()):
            if seen and seen[-1][1] == step - 1 and seen[-1][2] == rows:
                seen[-1][1] = step
            else:
                seen.append([step, step, rows])
        return {
            "kind": "rows",
            "host": self.host,
            "sample": self.sample,
            "steps": self.steps,
            "hashes": self.hashes,
            "seen": seen,
        }
