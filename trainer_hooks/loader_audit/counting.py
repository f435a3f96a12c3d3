"""Counts what several hosts read against what one host reads, by whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.loader_audit.reading import Stream
from trainer_hooks.loader_audit.report import SHOWN_ROWS, Row

KEPT = "kept"
OWN_SHUFFLE = "each host has one of its own"
BLOCKS = "each host reads a block of it"
WORKERS = "workers take turns"


class Expected(NamedTuple):
    """One pass over the data, as a single host without workers reads it.

    keys: uint64 (distinct,), sorted; counts: how often each is in the data; places: where it came first, in rows.
    rows: how many rows a pass has, which may be more than were read (`loose` of them: what a last batch dropped).
    ended: the loader ends by itself. partial: `rows` is less than a pass, so unread rows cannot be told.
    """

    keys: NDArray[np.uint64]
    counts: NDArray[np.int64]
    places: NDArray[np.int64]
    rows: int
    loose: int
    ended: bool
    partial: bool = False

    def where(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The place of each key in the one host's order; -1 where that host did not read it."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        found = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[found] == keys, self.places[found], -1)


def expect(stream: Stream, rows: int, loose: int, partial: bool = False) -> Expected:
    """What `stream`, the single host's pass, says of the data."""
    keys, places, counts = np.unique(stream.keys, return_index=True, return_counts=True)
    return Expected(keys, counts.astype(np.int64), places.astype(np.int64), rows, loose, stream.ended, partial)


class Tally(NamedTuple):
    """Reads of all hosts together.

    never: rows of a pass that no host read. twice: reads beyond those that the data has of a row, of which `within`
    are a host's own and `across` rows came on several hosts. unknown: rows that the single host did not read.
    examples: some rows that were read too often or not at all.
    """

    read: int
    distinct: int
    never: int
    twice: int
    within: int
    across: int
    unknown: int
    examples: tuple[Row, ...]


def tally(expected: Expected, streams: Sequence[Stream]) -> Tally:
    """Counts the rows of `streams`, one per host; those of a resumed run in any order."""
    keys = np.concatenate([stream.keys for stream in streams]) if streams else np.zeros(0, np.uint64)
    host = np.repeat(np.arange(len(streams)), [len(stream.keys) for stream in streams])
    universe = np.union1d(expected.keys, keys)
    allowed = np.ones(len(universe), np.int64)
    known = np.searchsorted(universe, expected.keys)
    allowed[known] = expected.counts
    row = np.searchsorted(universe, keys)
    counts = np.bincount(row, minlength=len(universe))
    excess = np.maximum(counts - allowed, 0)
    pairs, reads = np.unique(row * max(len(streams), 1) + host, return_counts=True)
    pair_row = pairs // max(len(streams), 1)
    hosts_of = np.bincount(pair_row, minlength=len(universe))
    within = int(np.maximum(reads - allowed[pair_row], 0).sum())
    distinct_reads = int(np.minimum(counts, allowed).sum())
    bad = np.flatnonzero((excess > 0) | (counts < allowed))
    bad = bad[np.argsort(-excess[bad], kind="stable")][:SHOWN_ROWS]
    examples = tuple(
        Row(
            f"{int(universe[i]):016x}",
            int(counts[i]),
            int(allowed[i]),
            tuple(int(h) for h in np.unique(host[row == i])),
        )
        for i in bad
    )
    return Tally(
        read=len(keys),
        distinct=int((counts > 0).sum()),
        never=max(0, expected.rows - distinct_reads),
        twice=int(excess.sum()),
        within=within,
        across=int(((excess > 0) & (hosts_of > 1)).sum()),
        unknown=int((counts[np.isin(universe, expected.keys, assume_unique=True, invert=True)] > 0).sum()),
        examples=examples,
    )


def order(expected: Expected, streams: Sequence[Stream]) -> str:
    """How the hosts' common order differs from the single host's; empty where rows are not those of one pass.

    Kept: step by step, all hosts together read the rows that come next in the single host's order, in any sequence.
    """
    places = np.concatenate([expected.where(stream.keys) for stream in streams])
    if not len(places) or (places < 0).any() or len(np.unique(places)) < len(places):
        return ""
    steps = np.concatenate([stream.steps for stream in streams])
    by_step = np.argsort(steps, kind="stable")
    first = np.flatnonzero(np.diff(steps[by_step], prepend=-1))
    ends = np.append(first[1:], len(places))
    lowest, highest = (f.reduceat(places[by_step], first) for f in (np.minimum, np.maximum))
    if (lowest == first).all() and (highest == ends - 1).all():
        return KEPT
    rises = all((np.diff(expected.where(stream.keys)) > 0).all() for stream in streams)
    return BLOCKS if rises else OWN_SHUFFLE


def whole_batches(rows: int, hosts: int, batch: int) -> int:
    """Rows that each of `hosts` reads of `rows` where split and last batch drop what is left over."""
    return rows // hosts // batch * batch if batch else 0
