"""Windows of 32 tokens chosen by their content (docs/wire.md, "Window hash").

A text is recognised by them wherever it lies in a row: whether a window is chosen depends on its own 32 tokens alone,
never on its place. Every place is looked at, so the first part of the hash has to be cheap: a rolling hash modulo
2**32 by doubling (Karp, Miller and Rosenberg 1972), twelve passes over the array in all, 0.04 ms for 65,536 tokens.
Only the few windows it chooses get the second part, BLAKE2b.
"""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
from numpy.typing import NDArray

LENGTH = 32  # tokens
LEAST_DISTINCT = 16  # different tokens in a window: fewer is padding, or a list of zeros
MOST_IN_A_ROW = 3  # equal tokens side by side: four are padding
_MULTIPLIERS = tuple(np.uint32(m) for m in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1))
_LAST = np.uint32(0x2C1B3C6D)

Tokens = NDArray[np.uint32]


class Rolling:
    """Rolling hashes of all windows of an array. Keeps its two buffers: one thread may use it, one result at a time."""

    def __init__(self) -> None:
        self._buffers = (np.empty(0, np.uint32), np.empty(0, np.uint32))

    def __call__(self, flat: Tokens) -> Tokens:
        """uint32 (n - 31,): the hash of `flat[i : i + 32]` for each i; valid until the next call.

        With h₁[i] = token i and s = 1, 2, 4, 8, 16: h₂ₛ[i] = m·hₛ[i] + hₛ[i + s] modulo 2**32, each s with its own m;
        the hash is h₃₂ times one more.
        """
        n = len(flat) - LENGTH + 1
        if n <= 0:
            return np.empty(0, np.uint32)
        if len(self._buffers[0]) < len(flat):
            self._buffers = (np.empty(len(flat), np.uint32), np.empty(len(flat), np.uint32))
        source, count, size = flat, len(flat), 1
        for turn, multiplier in enumerate(_MULTIPLIERS):
            count -= size
            target = self._buffers[turn % 2][:count]
            np.multiply(source[:count], multiplier, out=target)
            np.add(target, source[size : size + count], out=target)
            source, size = target, 2 * size
        return np.multiply(source, _LAST, out=source)


def starts(hashes: Tokens, below: int, row_length: int) -> NDArray[np.int64]:
    """Where windows begin whose rolling hash is less than `below` and that lie inside one row of `row_length`."""
    found = np.arange(len(hashes)) if below > 0xFFFFFFFF else np.flatnonzero(hashes < np.uint32(below))
    return found[found % row_length <= row_length - LENGTH]


def is_text(window: Tokens) -> bool:
    """Whether 32 tokens say something: neither padding, wholly or in part, nor a few tokens over and over."""
    tokens = window.tolist()
    if len(set(tokens)) < LEAST_DISTINCT:
        return False
    run = 1
    for before, token in itertools.pairwise(tokens):
        run = run + 1 if token == before else 1
        if run > MOST_IN_A_ROW:
            return False
    return True


def number(rolling: int, window: Tokens) -> int:
    """The 64-bit hash of a window: its rolling hash, and behind it 4 bytes of BLAKE2b read big-endian."""
    return rolling << 32 | int.from_bytes(hashlib.blake2b(window.tobytes(), digest_size=4).digest(), "big")


def chosen(rows: Tokens, hashes: Tokens, sample: int) -> list[int]:
    """The windows of rows (batch, length) that are sent, in reading order: number × `sample` < 2**64, and text.

    `hashes` are the rolling hashes of the flattened rows. What stands twice in one row is given once.
    """
    flat, most = rows.reshape(-1), (2**64 - 1) // sample
    found: dict[tuple[int, int], int] = {}
    for start in starts(hashes, (most >> 32) + 1, rows.shape[1]).tolist():
        window = flat[start : start + LENGTH]
        made = number(int(hashes[start]), window)
        if made <= most and is_text(window):
            found[start // rows.shape[1], made] = made
    return list(found.values())
