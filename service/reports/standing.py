"""Where a deviation stands beside a limit: inside, outside, or it cannot be told. Pure."""

from __future__ import annotations

import math

from service.reports.document import Cell, Real, Stand

Z95 = 1.96


def standing(deviation: float | None, half: float | None, limit: float | None) -> tuple[Stand, str]:
    """Inside where the whole 95 % interval lies within ±limit, outside where it lies wholly beyond; else it cannot be
    told, with the reason."""
    if deviation is None:
        return "cannot tell", "nothing to compare with at these tokens"
    if math.isinf(deviation):
        return "outside", ""
    if math.isnan(deviation):
        return "cannot tell", "not a number"
    if limit is None:
        return "cannot tell", "no tolerance is known"
    if half is None or not math.isfinite(half):
        return "cannot tell", "its noise is not known"
    if abs(deviation) + half <= limit:
        return "inside", ""
    if abs(deviation) - half > limit:
        return "outside", ""
    return "cannot tell", "the interval reaches over the limit"


def cell(run: float, reference: float | None, deviation: float | None, half: float | None, limit: float | None) -> Cell:
    """One cell of the table. A run's value that is not finite is outside by itself."""
    stand, because = standing(deviation, half, limit)
    if not math.isfinite(run):
        stand, because = "outside", "the run's value is not finite"
    return Cell(
        run=real(run), reference=real(reference), deviation=real(deviation), half_width=real(half), stand=stand,
        because=because,
    )  # fmt: skip


def real(value: float | None) -> Real:
    """A number of the document; what is not finite in words."""
    if value is None:
        return None
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
