"""What readings say beyond the rule: repeats over time, how far back, within a batch; coverage by pass. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.detect.inputs import DeclaredData, Ints, RowReadings
from service.detect.repeats import Repeats, in_order

MOST_BINS = 100
MOST_DISTANCES = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Steps from `first` to `last`: sampled `readings` in them, and how many were `repeats` that nothing explains."""

    first: int
    last: int
    readings: int
    repeats: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """Repeats that nothing explains: of a row of the same step and host (`within_batch`), of the same step and another
    host (`across_hosts`); `distances`: (steps, repeats) to the row's previous reading, the commonest first."""

    within_batch: int
    across_hosts: int
    distances: list[tuple[int, int]]
    bins: list[Bin]


def repeated(readings: RowReadings, data: DeclaredData | None, found: Repeats | None = None) -> Repeated:
    """Every repeat of the readings, sorted out; `found` are their repeats, where they are known already."""
    readings = in_order(readings, 0)
    if found is None:
        found = Repeats()
        found.advance(readings, data)
    kept = ~found.legal.array
    where, previous = found.where.array[kept], found.previous.array[kept]
    steps, hosts = readings.steps, readings.hosts
    lags = steps[where] - steps[previous]
    same_host = hosts[where] == hosts[previous]
    values, counts = np.unique(lags, return_counts=True)
    order = np.lexsort((values, -counts))[:MOST_DISTANCES]
    return Repeated(
        within_batch=int(np.count_nonzero((lags == 0) & same_host)),
        across_hosts=int(np.count_nonzero((lags == 0) & ~same_host)),
        distances=[(int(values[i]), int(counts[i])) for i in order],
        bins=_bins(steps, steps[where], readings.seen_steps),
    )


def _bins(steps: Ints, repeats: Ints, seen: Ints) -> list[Bin]:
    ends = [int(part[at]) for part in (steps, seen) if len(part) for at in (0, -1)]
    if not ends:
        return []
    first, last = min(ends), max(ends)
    size = -(-(last - first + 1) // MOST_BINS)
    count = -(-(last - first + 1) // size)
    all_, again = (np.bincount((part - first) // size, minlength=count).tolist() for part in (steps, repeats))
    return [
        Bin(first + i * size, min(first + (i + 1) * size - 1, last), all_[i], again[i])
        for i in range(count)
        if all_[i]
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PassRead:
    """One pass over the data set, counted from 1: so many rows were `read` in it, `distinct` of them different ones by
    the sample, `within` of the pass (0 to 1)."""

    number: int
    read: int
    distinct: int
    within: float


def passes(readings: RowReadings, data: DeclaredData) -> list[PassRead]:
    """What each pass over the declared rows has read. The passes are told apart by the rows that were read: those of
    steps that nobody reported are missing in them.

    A batch that two passes share counts for the pass in which it began.
    """
    readings = in_order(readings, 0)
    before = np.cumsum(readings.seen_rows) - readings.seen_rows  # rows read before each step
    if len(before) == 0:
        return []
    place = np.minimum(np.searchsorted(readings.seen_steps, readings.steps), len(before) - 1)
    pass_of_step, pass_of_row = before // data.rows, (before // data.rows)[place]
    made: list[PassRead] = []
    for number in range(int(pass_of_step[-1]) + 1):
        low, high = np.searchsorted(pass_of_row, (number, number + 1))
        begin, end = np.searchsorted(pass_of_step, (number, number + 1))
        read = int(readings.seen_rows[begin:end].sum())
        ordered = np.sort(readings.hashes[low:high])
        distinct = (int(np.count_nonzero(ordered[1:] != ordered[:-1])) + (high > low)) * readings.sample
        made.append(PassRead(number + 1, read, distinct, min(distinct / data.rows, 1.0)))
    return made
