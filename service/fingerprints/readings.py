"""From what hosts sent to what was read: which row hashes were seen at which step. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.detect.inputs import RowReadings

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one host sent at once. `steps` int64 (n,) and `hashes` uint64 (n,) are parallel; all hashes are 0 modulo
    `sample`, or with `lowest`, as windows are, below 2**64 / `sample`; `seen` int64 (m, 3): from step, to step
    (inclusive), rows per step. Steps beyond `limit` do not count."""

    host: int
    sample: int
    steps: Ints
    hashes: NDArray[np.uint64]
    seen: Ints
    limit: int
    lowest: bool = False


def combine(readings: Sequence[Reading]) -> RowReadings | None:
    """The live readings in order of steps; None if there are none.

    An equal (step, host, hash) that was sent twice is one reading; one that stands twice in the same sending is two.
    Where segments sampled differently, only hashes that all of them would have sent are kept.
    """
    if not readings:
        return None
    samples, lowest = {reading.sample for reading in readings}, readings[0].lowest
    sample = max(samples) if lowest else math.lcm(*samples)
    hashes = np.concatenate([reading.hashes for reading in readings])
    steps = np.concatenate([reading.steps for reading in readings])
    sizes = [len(reading.steps) for reading in readings]
    hosts: Ints = np.repeat(np.array([reading.host for reading in readings], np.int64), sizes)
    limits: Ints = np.repeat(np.array([reading.limit for reading in readings], np.int64), sizes)
    sendings: Ints = np.repeat(np.arange(len(readings)), sizes)
    live = (steps <= limits) & (hashes <= np.uint64((2**64 - 1) // sample) if lowest else _divides(sample, hashes))
    steps, hosts, hashes, sendings = steps[live], hosts[live], hashes[live], sendings[live]
    order = _order(steps, hosts, hashes, sendings)
    steps, hosts, hashes, sendings = steps[order], hosts[order], hashes[order], sendings[order]
    once = _most_per_sending(steps, hosts, hashes, sendings)
    seen_steps, seen_rows = _seen(readings)
    return RowReadings(steps[once], hosts[once], hashes[once], sample, seen_steps, seen_rows)


def _order(steps: Ints, hosts: Ints, hashes: NDArray[np.uint64], sendings: Ints) -> Ints:
    """By step, host, hash, sending. A sending is in order of its steps mostly: such runs are merged at once, and hashes
    are looked at only where one host has several at a step."""
    names, place = np.unique(hosts, return_inverse=True)
    if len(steps) == 0 or int(steps.max()) >= 2**62 // max(len(names), 1):
        return np.lexsort((sendings, hashes, hosts, steps))
    keys: Ints = steps * len(names) + place
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    same = keys[1:] == keys[:-1]
    several = np.flatnonzero(np.append(same, False) | np.append(False, same))
    these = order[several]
    order[several] = these[np.lexsort((sendings[these], hashes[these], keys[several]))]
    return order


def merge(readings: Sequence[Reading]) -> tuple[Ints, NDArray[np.uint64], Ints]:
    """Steps, hashes and seen of one sending that says what several of one host, sample and limit say together."""
    together = combine(readings)
    assert together is not None
    steps, rows = together.seen_steps, together.seen_rows
    new = np.ones(len(steps), np.bool_)
    new[1:] = (steps[1:] != steps[:-1] + 1) | (rows[1:] != rows[:-1])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(steps)) - 1 if len(starts) else starts
    return together.steps, together.hashes, np.column_stack([steps[starts], steps[ends], rows[starts]])


def _divides(sample: int, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    if sample >= 2**64:  # no hash but 0 is in every sample
        return hashes == 0
    return hashes % np.uint64(sample) == 0


def _most_per_sending(steps: Ints, hosts: Ints, hashes: NDArray[np.uint64], sendings: Ints) -> NDArray[np.bool_]:
    """Of sorted readings, keep each (step, host, hash) as often as the sending that holds it most often holds it."""
    n = len(steps)
    if n == 0:
        return np.empty(0, np.bool_)
    new_key = np.ones(n, np.bool_)
    new_key[1:] = (steps[1:] != steps[:-1]) | (hosts[1:] != hosts[:-1]) | (hashes[1:] != hashes[:-1])
    new_sending = new_key.copy()
    new_sending[1:] |= sendings[1:] != sendings[:-1]
    starts = np.flatnonzero(new_sending)
    nth = np.arange(n) - np.repeat(starts, np.diff(np.append(starts, n)))  # place inside its sending
    # A reading stays if it is the first sending of its key to reach that place.
    keys = np.cumsum(new_key)
    order = np.lexsort((np.arange(n), nth, keys))
    first = np.ones(n, np.bool_)
    first[1:] = (keys[order][1:] != keys[order][:-1]) | (nth[order][1:] != nth[order][:-1])
    kept = np.zeros(n, np.bool_)
    kept[order[first]] = True
    return kept


def _seen(readings: Sequence[Reading]) -> tuple[Ints, Ints]:
    """Steps that were reported, and rows read at each over all hosts; a host's repeated report counts once."""
    by_host: dict[int, list[Ints]] = {}
    for reading in readings:
        runs = reading.seen[reading.seen[:, 0] <= reading.limit]
        if len(runs):
            ends = np.minimum(runs[:, 1], reading.limit)
            by_host.setdefault(reading.host, []).append(np.column_stack([runs[:, 0], ends, runs[:, 2]]))
    if not by_host:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    runs = np.concatenate([_apart(np.concatenate(runs)) for runs in by_host.values()])
    # Hosts mostly report the same long runs: add them up where one begins or ends, not step by step.
    edges, place = np.unique(np.concatenate([runs[:, 0], runs[:, 1] + 1]), return_inverse=True)
    begins, ends = place[: len(runs)], place[len(runs) :]
    rows, reports = np.zeros(len(edges), np.int64), np.zeros(len(edges), np.int64)
    for at, sign in ((begins, 1), (ends, -1)):
        np.add.at(rows, at, sign * runs[:, 2])
        np.add.at(reports, at, sign)
    told = np.flatnonzero(np.cumsum(reports)[:-1] > 0)
    return _steps_of(np.column_stack([edges[told], edges[told + 1] - 1, np.cumsum(rows)[told]]))


def _apart(runs: Ints) -> Ints:
    """One host's runs such that no step is in two of them, with the most rows that were reported for it."""
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    if (runs[1:, 0] > runs[:-1, 1]).all():
        return runs
    steps, rows = _expand(runs)
    return np.column_stack([steps, steps, rows])


def _steps_of(runs: Ints) -> tuple[Ints, Ints]:
    """Every step of runs, in their order, and its rows."""
    lengths = runs[:, 1] - runs[:, 0] + 1
    within: Ints = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    steps: Ints = np.repeat(runs[:, 0], lengths) + within
    return steps, np.repeat(runs[:, 2], lengths)


def _expand(runs: Ints) -> tuple[Ints, Ints]:
    """Every step of one host's runs once, with the most rows that were reported for it."""
    steps, rows = _steps_of(runs)
    order = np.lexsort((rows, steps))
    steps, rows = steps[order], rows[order]
    last = np.append(steps[1:] != steps[:-1], True)
    return steps[last], rows[last]
