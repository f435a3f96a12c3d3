"""Medians of few values, without what numpy's general one spends on axes, masks and kinds of numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def median(values: Floats | NDArray[np.int64]) -> float:
    """The median of (n,), as `np.median` has it: NaN where a value is NaN, or where there is none."""
    n = len(values)
    if n == 0:
        return math.nan
    ordered = np.array(values)
    ordered.partition(((n - 1) // 2, n // 2, n - 1))  # NaN would be last
    if ordered[-1] != ordered[-1]:
        return math.nan
    high = float(ordered[n // 2])
    return high if n % 2 else (float(ordered[n // 2 - 1]) + high) / 2.0


def row_medians(rows: Floats) -> Floats:
    """The median of each row of (n, m); no value may be NaN."""
    count = rows.shape[1]
    low, high = (count - 1) // 2, count // 2
    ordered = np.partition(rows, (low, high), axis=1)
    return (ordered[:, low] + ordered[:, high]) / 2.0
