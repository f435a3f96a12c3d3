"""What readings say beyond the rule: repeats over time, how far back, within a batch; rows beside another run. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def repeated(readings: RowReadings, data: DeclaredData | None) -> Repeated:
    """Every repeat of the readings, sorted out."""
    readings = in_order(readings, 0)
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
class Beside:
    """Two runs' sampled rows at the steps that both reported: `compared` hashes of this run, `same` of them read by the
    other at the same step. `through`: the last step up to which all are the same (None: not even the first);
    `differs`: the first step at which they are not (None: nowhere). `steps` were compared, `told` of them by a hash."""

    sample: int
    steps: int
    told: int
    compared: int
    same: int
    through: int | None
    differs: int | None


def beside(run: RowReadings, other: RowReadings) -> Beside:
    """The rows of a run beside those that another one read, or is expected to read, at the same steps.

    Hosts do not matter: a batch is the same on however many hosts it lies.
    """
    sample = int(np.lcm(run.sample, other.sample))
    both = np.intersect1d(run.seen_steps, other.seen_steps)
    mine, theirs = (_counted(readings, sample, both) for readings in (run, other))
    keys, place = np.unique(np.concatenate((mine, theirs)), axis=0, return_inverse=True)
    own = np.bincount(place[: len(mine)], minlength=len(keys))
    others = np.bincount(place[len(mine) :], minlength=len(keys))
    wrong = keys[own != others]
    differs = int(wrong[:, 0].min()) if len(wrong) else None
    same_steps = both if differs is None else both[both < differs]
    return Beside(
        sample=sample,
        steps=len(both),
        told=len(np.unique(keys[:, 0])),
        compared=len(mine),
        same=int(np.minimum(own, others).sum()),
        through=int(same_steps[-1]) if len(same_steps) else None,
        differs=differs,
    )


def _counted(readings: RowReadings, sample: int, steps: Ints) -> NDArray[np.uint64]:
    """(step, hash) of the readings (n, 2) at some steps, of those hashes that a sample of both holds."""
    keep = (readings.hashes % np.uint64(sample) == 0) & np.isin(readings.steps, steps)
    return np.column_stack((readings.steps[keep].astype(np.uint64), readings.hashes[keep]))
