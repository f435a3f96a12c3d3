"""Sampled fingerprints of the rows a process feeds to the model (docs/wire.md, "Fingerprints").

The hash of a row is BLAKE2b of 8 bytes over its tokens as little-endian uint32. It is kept only if its number, the
digest read big-endian, is a multiple of `sample`: equal rows are so always sampled together, wherever they are read,
and the share of repeats among the sampled rows is an unbiased estimate of the share among all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.heldout_windows import RATE, HeldoutWindows
from trainer_hooks.windows import LENGTH, Rolling, chosen

DIGEST_BYTES = 8
LEAST_DISTINCT = 32  # different tokens in a row of 256 or more
MAX_HASHES = 50_000  # in one record
QUIET_SECONDS = 30.0  # between two records that only say what was looked through


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


def sampled_rows(rows: NDArray[np.uint32], sample: int) -> list[int]:
    """The hashes of rows (batch, length) that are multiples of `sample`, in row order.

    Rows with fewer than min(32, length // 8) different tokens are left out: they are padding, and all alike.
    """
    hashes = row_hashes(rows)
    least = min(LEAST_DISTINCT, rows.shape[1] // 8)
    return [int(hashes[i]) for i in np.flatnonzero(hashes % np.uint64(sample) == 0) if _distinct(rows[i]) >= least]


def _distinct(row: NDArray[np.uint32]) -> int:
    return len(np.unique(row))


class Seen:
    """How many rows were read at each step, told as few runs."""

    def __init__(self) -> None:
        self._rows_of_step: dict[int, int] = {}

    def add(self, step: int, rows: int) -> None:
        """A step may come in several pieces."""
        self._rows_of_step[step] = self._rows_of_step.get(step, 0) + rows

    def runs(self) -> list[list[int]]:
        """Inclusive runs [first step, last step, rows per step]."""
        seen: list[list[int]] = []
        for step, rows in sorted(self._rows_of_step.items()):
            if seen and seen[-1][1] == step - 1 and seen[-1][2] == rows:
                seen[-1][1] = step
            else:
                seen.append([step, step, rows])
        return seen


class Record:
    """Collects what one host read until it is written as the body of one `fingerprints` record."""

    def __init__(self, kind: str, host: int, sample: int, **told: Any) -> None:
        self.steps: list[int] = []
        self.hashes: list[str] = []
        self.counts: list[int] = []  # of held-out hits alone
        self.seen = Seen()
        self._head = {"kind": kind, "host": host, "sample": sample, **told}

    def add(self, step: int, numbers: Iterable[int]) -> None:
        """Takes hashes that were met at `step`."""
        for number in numbers:
            self.steps.append(step)
            self.hashes.append(f"{number:016x}")

    def body(self) -> dict[str, Any]:
        """The wire body but for process and seq."""
        body = {**self._head, "steps": self.steps, "hashes": self.hashes, "seen": self.seen.runs()}
        return {**body, "counts": self.counts} if self.counts else body


class Fingerprints:
    """What one process has read since its last records: rows, windows, held-out hits. One thread uses it."""

    def __init__(self, sample: int, heldout: HeldoutWindows | None = None) -> None:
        self._sample = sample
        self._heldout = heldout if heldout is not None else HeldoutWindows()
        self._rolling = Rolling()
        self._rows: dict[int, Record] = {}
        self._others: dict[tuple[Any, ...], Record] = {}
        self._others_since = 0.0
        self._newest: dict[int, int] = {}  # step of each host

    def add(self, step: int, rows: NDArray[np.uint32], host: int) -> None:
        """Takes the rows (batch, length) of a `snapshot`, read by `host` at `step`; a step may come in pieces."""
        record = self._rows.setdefault(host, Record("rows", host, self._sample))
        record.add(step, sampled_rows(rows, self._sample))
        record.seen.add(step, len(rows))
        if rows.shape[1] < LENGTH:
            return  # no window fits
        hashes = self._rolling(rows.reshape(-1))
        windows = self._of("windows", host, self._sample * rows.shape[1])
        windows.add(step, chosen(rows, hashes, self._sample * rows.shape[1]))
        windows.seen.add(step, len(rows))
        for name, size in self._heldout.sizes().items():
            self._of("heldout_hits", host, RATE, set=name, windows=size).seen.add(step, len(rows))
        for hit in self._heldout.met(rows, hashes):
            size = self._heldout.sizes()[hit.set_name]
            met = self._of("heldout_hits", host, RATE, set=hit.set_name, windows=size)
            met.add(step, [hit.number])
            met.counts.append(hit.count)

    def due(self, now: float, everything: bool = False) -> list[dict[str, Any]]:
        """The bodies of the records to be written now; what they hold is forgotten here.

        Rows are told at once, and so is whatever was met; that nothing was met, of windows, only every 30 s or with
        `everything`: a record costs more than a look.
        """
        records = list(self._rows.values())
        self._rows = {}
        all_due = everything or now - self._others_since >= QUIET_SECONDS
        if all_due:
            self._others_since = now
        for key, record in list(self._others.items()):
            if all_due or record.hashes:
                records.append(self._others.pop(key))
        return [record.body() for record in records]

    def full(self, step: int, host: int) -> bool:
        """Whether what is held is to be written before the rows of `step` are added: there is much of it, or `host` has
        gone back, and what one record says twice of a step is two readings, but in two records it is one."""
        newest, self._newest[host] = self._newest.get(host, -1), step
        return step < newest or any(len(r.hashes) >= MAX_HASHES for r in (*self._rows.values(), *self._others.values()))

    def _of(self, kind: str, host: int, sample: int, **told: Any) -> Record:
        key = (kind, host, sample, *told.values())
        if key not in self._others:
            self._others[key] = Record(kind, host, sample, **told)
        return self._others[key]
