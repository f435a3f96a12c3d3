"""Held-out text in training rows: every process knows the windows of the held-out sets, and sends only what it meets.

One window in 64 is looked for, chosen by content as all windows are, so that a document is found however it is packed:
the part of it that a row holds, n tokens, is missed with probability (63/64)**(n - 31).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.windows import LENGTH, Rolling, Tokens, is_text, number, starts

RATE = 64  # one window in so many is looked for
BELOW = 2**32 // RATE
CELLS_PER_WINDOW = 256  # of the first look: so one of 256 other windows is looked at a second time
MOST_CELLS = BELOW.bit_length() - 1  # as a power of two: 8 MB of bits
MOST_WINDOWS = 2**24  # of one set: 128 MB, of about a billion tokens
PIECE = 2**16  # tokens hashed at once


def windows_of(source: Any) -> NDArray[np.uint64]:
    """The windows of a held-out set that are looked for: their numbers, sorted, each once.

    `source` is a token array (length,) or (rows, length); a mapping {"tokens": that, "mask": bool, which tokens are
    text}; an iterable of these; an evaluation with `rows()`, such as `trainer_hooks.evals.HeldOut`; or a function that
    gives one of them. Raises ValueError for anything else, and for a set that is too large.
    """
    rolling = Rolling()
    all_found, total = [np.zeros(0, np.uint64)], 0
    for tokens, mask in _batches(source):
        rows = np.atleast_2d(tokens)
        text = np.atleast_2d(mask) if mask is not None else None
        found: list[int] = []
        for row, flags in zip(rows, rows if text is None else text, strict=True):
            for first in range(0, max(len(row) - LENGTH + 1, 0), PIECE):
                piece = row[first : first + PIECE + LENGTH - 1]
                hashes = rolling(piece)
                for start in starts(hashes, BELOW, len(piece)).tolist():
                    window = piece[start : start + LENGTH]
                    at = first + start
                    if is_text(window) and (text is None or flags[at : at + LENGTH].all()):
                        found.append(number(int(hashes[start]), window))
        all_found.append(np.array(found, np.uint64))
        total += len(found)
        if total > MOST_WINDOWS:
            raise ValueError(f"more than {MOST_WINDOWS:,} windows to look for; give a part of the set")
    return np.unique(np.concatenate(all_found))


class Hit:
    """What one row holds of one set: `count` windows, the lowest of them `number`."""

    __slots__ = ("count", "number", "row", "set_name")

    def __init__(self, set_name: str, row: int, number: int) -> None:
        self.set_name, self.row, self.number, self.count = set_name, row, number, 1

    def add(self, number: int) -> None:
        """One more window of the row."""
        self.count += 1
        self.number = min(self.number, number)


class HeldoutWindows:
    """The windows of several held-out sets. Another thread may `add` a set while one looks."""

    def __init__(self) -> None:
        self._sets: dict[str, NDArray[np.uint64]] = {}
        self._look: tuple[NDArray[np.uint8], int] | None = None

    def __len__(self) -> int:
        return len(self._sets)

    def sizes(self) -> dict[str, int]:
        """Set -> how many of its windows are looked for."""
        return {name: len(numbers) for name, numbers in self._sets.items()}

    def add(self, name: str, numbers: NDArray[np.uint64]) -> None:
        """Look for the windows of one more set from now on, or for others than before of a known one."""
        sets = {**self._sets, name: numbers}
        self._look = _first_look(np.concatenate(list(sets.values())))
        self._sets = sets  # afterwards: who looks by the older cells misses the new set for one batch, no more

    def met(self, rows: Tokens, hashes: Tokens) -> list[Hit]:
        """What rows (batch, length) hold of the sets, one `Hit` for each row and set; `hashes` are rolling."""
        if self._look is None:
            return []
        cells, shift = self._look
        places = starts(hashes, BELOW, rows.shape[1])
        at = hashes[places] >> np.uint32(shift)
        hit = (cells[at >> np.uint32(3)] >> (at & np.uint32(7)).astype(np.uint8)) & 1
        found: dict[tuple[str, int], Hit] = {}
        flat, sets = rows.reshape(-1), self._sets
        for start in places[hit.view(np.bool_)].tolist():
            made = number(int(hashes[start]), flat[start : start + LENGTH])
            for name, numbers in sets.items():
                place = int(np.searchsorted(numbers, np.uint64(made)))
                if place < len(numbers) and int(numbers[place]) == made:
                    key = (name, start // rows.shape[1])
                    if key in found:
                        found[key].add(made)
                    else:
                        found[key] = Hit(*key, made)
        return list(found.values())


def _first_look(numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], int]:
    """A bit for each value of the rolling hash's leading bits: set where a window has it; and how far to shift."""
    bits = min(max((len(numbers) * CELLS_PER_WINDOW).bit_length(), 10), MOST_CELLS)
    shift = MOST_CELLS - bits
    flags = np.zeros(2**bits, np.bool_)
    flags[(numbers >> np.uint64(32 + shift)).astype(np.int64)] = True
    return np.packbits(flags, bitorder="little"), shift


def _batches(source: Any) -> Iterator[tuple[Tokens, NDArray[np.bool_] | None]]:
    if callable(getattr(source, "rows", None)):
        source = source.rows()
    elif callable(source):
        source = source()
    if isinstance(source, Mapping) or hasattr(source, "ndim"):
        source = [source]
    if not isinstance(source, Iterable) or isinstance(source, str | bytes):
        raise ValueError(f"a held-out set must be token arrays, not {type(source).__name__}")
    for batch in cast("Iterable[Any]", source):
        fields = cast("Mapping[str, Any]", batch) if isinstance(batch, Mapping) else {"tokens": batch}
        if "tokens" not in fields:
            raise ValueError(f"a held-out batch has no tokens, only {', '.join(map(str, fields)) or 'nothing'}")
        tokens = np.asarray(fields["tokens"])
        if tokens.dtype.kind not in "iu" or tokens.ndim not in (1, 2):
            raise ValueError(f"held-out tokens must be integers (rows, length), not {tokens.dtype}{[*tokens.shape]}")
        mask = fields.get("mask")
        if mask is not None:
            mask = np.asarray(mask).astype(np.bool_)
            if mask.shape != tokens.shape:
                raise ValueError(f"a held-out mask must have the tokens' shape {tokens.shape}, not {mask.shape}")
        yield np.ascontiguousarray(tokens, "<u4"), mask
