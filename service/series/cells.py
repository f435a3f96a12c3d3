"""Cells: what a stretch of steps looked like, without its points. Pure.

A cell of width w holds the points whose steps s share s // w. Because cells are aligned to the step axis, joining the
narrow cells of a summary and counting the points themselves give the same wide cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cells:
    """Parallel arrays (m,), in step order.

    `counts` counts all points, `non_finite` those that are NaN or infinite. `minimum` and `maximum` are over the finite
    ones (+inf and -inf where there is none), `total` is their sum; `first` and `last` are values as they came;
    `last_steps` is the step of `last`.
    """

    last_steps: Ints
    counts: Ints
    non_finite: Ints
    minimum: Floats
    maximum: Floats
    first: Floats
    last: Floats
    total: Floats

    def __len__(self) -> int:
        return len(self.last_steps)


def cells_of(steps: Ints, values: Floats, width: int) -> Cells:
    """The cells of points sorted by step."""
    if width == 1 and not np.any(steps[1:] == steps[:-1]):
        return _single(steps, values)
    starts = _starts(steps, width)
    ends = np.append(starts[1:], len(steps)) - 1
    finite = np.isfinite(values)
    with np.errstate(over="ignore"):  # sums of the largest numbers are infinite; minimum and maximum bound the mean
        total = np.add.reduceat(np.where(finite, values, 0.0), starts)
    return Cells(
        steps[ends],
        ends - starts + 1,
        np.add.reduceat((~finite).astype(np.int64), starts),
        np.minimum.reduceat(np.where(finite, values, np.inf), starts),
        np.maximum.reduceat(np.where(finite, values, -np.inf), starts),
        values[starts],
        values[ends],
        total,
    )


def _single(steps: Ints, values: Floats) -> Cells:
    finite = np.isfinite(values)
    low, high, total = (np.where(finite, values, other) for other in (np.inf, -np.inf, 0.0))
    return Cells(steps, np.ones(len(steps), np.int64), (~finite).astype(np.int64), low, high, values, values, total)


def join(parts: Sequence[Cells]) -> Cells:
    """Cells of one stretch of steps after those of another."""
    if len(parts) == 1:
        return parts[0]
    return Cells(*(np.concatenate([getattr(part, name) for part in parts]) for name in Cells.__slots__))


def widen(cells: Cells, width: int) -> Cells:
    """Wider cells from narrower ones, whose widths divide `width`."""
    starts = _starts(cells.last_steps, width)
    if len(starts) == len(cells):
        return cells
    ends = np.append(starts[1:], len(cells)) - 1
    with np.errstate(over="ignore"):
        total = np.add.reduceat(cells.total, starts)
    return Cells(
        cells.last_steps[ends],
        np.add.reduceat(cells.counts, starts),
        np.add.reduceat(cells.non_finite, starts),
        np.minimum.reduceat(cells.minimum, starts),
        np.maximum.reduceat(cells.maximum, starts),
        cells.first[starts],
        cells.last[ends],
        total,
    )


def _starts(steps: Ints, width: int) -> Ints:
    """Where a new cell begins among steps in order (reduceat wants at least one)."""
    number = steps // width
    return np.concatenate([[0], np.flatnonzero(number[1:] != number[:-1]) + 1])
