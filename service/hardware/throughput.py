"""How fast each segment trained, from what its trainer logged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.database.models import Segment
from service.runs.repository import SegmentRow
from service.series.repository import Points, SeriesRepository

RATE = "throughput/tokens_per_second_per_device"
SECONDS = "throughput/step_seconds"


LAST_STEPS = 20_000  # of a segment that are looked at


@dataclass(frozen=True, slots=True)
class Throughput:
    """Median tokens/s of one device over the `n` steps of a segment that say it, and the metric it is from.

    A median, since steps that follow an evaluation or a checkpoint carry its time."""

    tokens_per_second_per_device: float
    n: int
    metric: str


def throughput(series: SeriesRepository, row: SegmentRow, last_step: int) -> Throughput | str:
    """Of the last 20,000 live steps of a segment, or of its first ones where later starts supersede it wholly; a text
    is the reason why there is none. `last_step` is the run's."""
    segment = row.segment
    if row.superseded:
        first, last = segment.start_step, segment.start_step + LAST_STEPS
    else:
        last = last_step if row.live_to_step is None else min(row.live_to_step, last_step)
        first = max(segment.start_step, last - LAST_STEPS)
    found = series.read(segment.run_id, [RATE, SECONDS], from_step=first, to_step=last, superseded=True)
    return _of(segment, found.get(RATE), found.get(SECONDS))


def _of(segment: Segment, rates: Points | None, seconds: Points | None) -> Throughput | str:
    found = _median(rates, segment.id)
    if found is not None:
        return Throughput(*found, RATE)
    found = _median(seconds, segment.id)
    if found is None:
        return f"neither {RATE} nor {SECONDS} was logged"
    devices = segment.topology.get("devices")
    if not isinstance(devices, int) or isinstance(devices, bool) or devices < 1:
        return f"only {SECONDS} was logged, and the number of devices is not known"
    if segment.tokens_per_step is None:
        return f"only {SECONDS} was logged, and tokens_per_step is not one number"
    return Throughput(segment.tokens_per_step / found[0] / devices, found[1], SECONDS)


def _median(points: Points | None, segment_id: int) -> tuple[float, int] | None:
    if points is None:
        return None
    values = points.values[points.segments == segment_id]
    values = values[np.isfinite(values) & (values > 0)]
    return (float(np.median(values)), len(values)) if len(values) else None
