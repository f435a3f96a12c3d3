"""Repeated rows: how soon they are said, and that natural twins of a corpus are not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.detect_runs import rng_of
from benchmarks.detect_table import Row, at_most, quantiles
from service.detect import rows
from service.detect.inputs import RowReadings, RunView

BARS = {1.0: (12.0, 20.0), 0.01: (1000.0, 2000.0)}  # share -> median and p95, in steps


def repeats(share: float, count: int) -> list[Row]:
    """512 rows a step, one in 1,024 sampled, a share of them repeated from some step on."""
    delays: list[float] = []
    for i in range(count):
        rng = rng_of(7, i, f"{share}")
        before, after = 20_000, int(20 / share) + 200
        at = np.repeat(np.arange(3 * (before + after)), rng.poisson(0.5, 3 * (before + after)))[: before + after]
        hashes = rng.integers(0, 2**63, before + after).astype(np.uint64)
        again = np.flatnonzero(rng.random(after) < share) + before
        hashes[again] = hashes[rng.permutation(before)[: len(again)]]
        seen = np.arange(int(at[-1]) + 1)
        readings = RowReadings(at, np.zeros(len(at), np.int64), hashes, 1024, seen, np.full(len(seen), 512))
        found = rows.find(_view(readings))
        assert found is not None
        if found.episode is not None:
            delays.append(float(at[found.episode.alarm] - at[again[0]]))
    bar = BARS.get(share)
    met = None if bar is None else at_most(delays, 50, bar[0]) and at_most(delays, 95, bar[1]) and len(delays) == count
    return [Row(f"repeated rows, share {share:g}: steps from the first repeat, median / p95",
                "" if bar is None else f"median ≤ {bar[0]:,.0f}, p95 ≤ {bar[1]:,.0f}",
                f"{len(delays)} of {count}: {quantiles(delays, 50, 95)}", "sees no rows", met)]  # fmt: skip


def twins(first: int, last: int) -> int:
    """Clean runs of 724M rows number `first` to `last` - 1, natural twins at 1e-4, every other one with a cluster of
    1,000 equal rows: how many raise an alarm."""
    alarms = 0
    for i in range(first, last):
        rng = rng_of(8, i, "twins")
        n = 707_000
        hashes = rng.integers(0, 2**63, n).astype(np.uint64)
        natural = rng.permutation(n)[: int(1e-4 * n)]
        hashes[natural] = hashes[(natural * rng.random(len(natural))).astype(np.int64)]
        if i % 2:  # one cluster of 1,000 equal rows among the sampled hashes
            hashes[rng.permutation(n)[:1000]] = np.uint64(1)
        at = np.arange(n) * 2
        found = rows.find(_view(RowReadings(at, np.zeros(n, np.int64), hashes, 1024, at, np.full(n, 1024))))
        alarms += found is not None and found.episode is not None
    return alarms


def twin_rows(parts: Sequence[int], count: int) -> list[Row]:
    """The row of all parts together."""
    what = "clean runs of 724M rows with natural twins at 1e-4, half with a cluster of 1,000"
    return [Row(what, "0 in 200", f"{sum(parts)} of {count}", "sees no rows", not sum(parts))]


def _view(readings: RowReadings) -> RunView:
    return RunView({}, {}, {}, (), rows=readings)
