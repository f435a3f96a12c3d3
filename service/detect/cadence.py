"""When each rule is asked anew: bound to what has come, never to a clock, so that live and backtest say the same.

Where a log has (nearly) every step, most answers move only as blocks are filled, and all blocks end at multiples of 50
steps. So the rules look at such a log up to the last multiple that it has reached; what is sparse (evaluations, tests)
counts at once, and so does a log that is sparse, short, or shortly behind a trainer start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .inputs import Ints, RowReadings, RunView, Segment, Series

BLOCK = 50  # steps: blocks of every width end where a multiple of it does
SPIKE = 10  # steps, for the rule of spikes
LEAST = 512  # points up to the last multiple; every point of a shorter log counts
AFTER_START = 256  # steps behind a trainer start in which every point counts: replays are told within 64
DENSE = 0.5  # points in a step, from which a log has every step or nearly


def reached(steps: Ints, every: int, segments: Sequence[Segment]) -> int:
    """How many of the ascending `steps` (n,) count: those up to the last multiple of `every`, or all of them.

    The same for all n between two multiples, so what counts never becomes less while points come in order."""
    n = len(steps)
    if n <= LEAST:
        return n
    edge = int(steps[-1]) // every * every
    end = int(np.searchsorted(steps, edge, side="right"))
    if end == n or end < LEAST or max((s.start_step for s in segments), default=0) > max(edge - AFTER_START, 0):
        return n
    begin = int(np.searchsorted(steps, edge - every, side="right"))
    return end if end - begin >= DENSE * every else n


def up_to_blocks(view: RunView) -> RunView:
    """The view with every series and the row readings up to where they count, and without the clock."""
    metrics = {name: series_reached(series, BLOCK, view.segments) for name, series in view.metrics.items()}
    rows, windows = (_rows(readings, view.segments) for readings in (view.rows, view.windows))
    return replace(view, metrics=metrics, rows=rows, windows=windows, arrivals=None)


def series_reached(series: Series, every: int, segments: Sequence[Segment]) -> Series:
    """A series up to where it counts; the same object where all of it does."""
    n = reached(series.steps, every, segments)
    return series if n == len(series) else Series(series.steps[:n], series.tokens[:n], series.values[:n])


def all_finite_since(view: RunView, counted: RunView) -> bool:
    """Whether every value that came behind what counts is a finite number."""
    return all(
        bool(np.isfinite(series.values[len(counted.metrics[name]) :]).all()) for name, series in view.metrics.items()
    )


def _rows(readings: RowReadings | None, segments: Sequence[Segment]) -> RowReadings | None:
    if readings is None:
        return None
    seen = reached(readings.seen_steps, BLOCK, segments)
    if seen == len(readings.seen_steps):
        return readings
    n = int(np.searchsorted(readings.steps, int(readings.seen_steps[seen - 1]), side="right"))
    return RowReadings(
        readings.steps[:n], readings.hosts[:n], readings.hashes[:n], readings.sample, readings.seen_steps[:seen],
        readings.seen_rows[:seen],
    )  # fmt: skip
