"""Sequential detection: one-sided cumulative sums, and the episodes they open and close."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Episode:
    """Indices into the increments: first of the excursion that led to the alarm, the alarm, the end (None: open)."""

    onset: int
    alarm: int
    end: int | None


def episodes(increments: Floats, threshold: float, release: float | None = None) -> list[Episode]:
    """Episodes of a CUSUM (Page 1954): the sum of `increments` (n,) since its last minimum reaches `threshold`.

    An episode ends when the sum has fallen by `release` (default: twice the threshold) below its highest since the
    alarm. Causal: what is said at index i depends on increments 0…i only. Cost: linear, in numpy."""
    release = 2.0 * threshold if release is None else release
    total = np.concatenate(([0.0], np.cumsum(increments)))
    found: list[Episode] = []
    start, n = 0, len(increments)
    while start < n:
        part = total[start:]
        lowest = np.minimum.accumulate(part)
        reached = np.flatnonzero(part - lowest >= threshold)
        if len(reached) == 0:
            return found
        alarm = int(reached[0])
        onset = int(np.flatnonzero(part[: alarm + 1] == lowest[alarm])[-1])
        after = part[alarm:]
        fallen = np.flatnonzero(np.maximum.accumulate(after) - after >= release)
        end = int(fallen[0]) + alarm + start - 1 if len(fallen) else None
        found.append(Episode(onset + start, alarm + start - 1, end))
        if end is None:
            return found
        start = end + 1
    return found
