"""Overviews of long series that a chart can draw: exact per window, or a pick of telling points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tsdownsample import MinMaxLTTBDownsampler

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Overview:
    """Windows of `width` steps on a fixed grid, empty ones left out. All arrays (m,): the window's `start` step, points
    in it `count`, of them non-finite `non_finite`; `minimum`, `maximum`, `mean`, `first`, `last` of the finite values
    (NaN where there is none)."""

    width: int
    start: Ints
    count: Ints
    non_finite: Ints
    minimum: Floats
    maximum: Floats
    mean: Floats
    first: Floats
    last: Floats

    def __len__(self) -> int:
        return len(self.start)


def overview(steps: Ints, values: Floats, windows: int) -> Overview:
    """Exact overview in at most `windows` windows (at least 2). `steps` (n,) ascending, `values` (n,).

    The width is the smallest power of two that is enough, and windows start at its multiples: appended points change
    only the last window, until the width doubles, which merges windows two by two."""
    if windows < 2:
        raise ValueError(f"overview: windows must be at least 2, not {windows}")
    if len(steps) != len(values):
        raise ValueError(f"overview: {len(steps)} steps but {len(values)} values")
    if len(steps) == 0:
        none, empty = np.zeros(0, np.int64), np.zeros(0)
        return Overview(1, none, none, none, empty, empty, empty, empty, empty)
    width = 1
    while int(steps[-1]) // width - int(steps[0]) // width + 1 > windows:
        width *= 2
    index = steps // width
    starts = np.flatnonzero(np.diff(index, prepend=index[0] - 1))
    finite = np.isfinite(values)
    count = np.diff(np.append(starts, len(values)))
    good = np.add.reduceat(finite.astype(np.int64), starts)
    any_good = good > 0
    minimum = np.minimum.reduceat(np.where(finite, values, np.inf), starts)
    maximum = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
    total = np.add.reduceat(np.where(finite, values, 0.0), starts)
    where = np.flatnonzero(finite)
    if len(where) == 0:
        first = last = np.full(len(starts), np.nan)
    else:
        at = np.minimum(np.searchsorted(where, starts), len(where) - 1)
        first = np.where(any_good, values[where[at]], np.nan)
        last = np.where(any_good, values[where[np.minimum(at + np.maximum(good, 1) - 1, len(where) - 1)]], np.nan)
    return Overview(
        width,
        index[starts] * width,
        count,
        count - good,
        np.where(any_good, minimum, np.nan),
        np.where(any_good, maximum, np.nan),
        np.where(any_good, total / np.maximum(good, 1), np.nan),
        first,
        last,
    )


def pick(steps: Ints, values: Floats, points: int) -> Ints:
    """Indices of at most `points` finite points that keep the line's look (MinMaxLTTB; Van Der Donckt et al. 2023),
    ascending; all finite ones if there are no more. `points` is made even, at least 4."""
    finite = np.flatnonzero(np.isfinite(values))
    points = max(points - points % 2, 4)
    if len(finite) <= points:
        return finite.astype(np.int64)
    x, y = np.ascontiguousarray(steps[finite]), np.ascontiguousarray(values[finite])
    downsampler: Any = MinMaxLTTBDownsampler()
    chosen: NDArray[np.unsignedinteger[Any]] = downsampler.downsample(x, y, n_out=points)
    return finite[np.unique(chosen).astype(np.int64)]
