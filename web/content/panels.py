"""What a group of figures answers with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from web import formatting
from web.figures.curve import Curve
from web.figures.layout import Figure


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure. `caption` says in words what it shows: it is the figure's text alternative too."""

    id: str
    title: str
    caption: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class Group:
    """Figures that stand together; `note` says what is missing and what to do."""

    panels: list[Panel] = field(default_factory=list[Panel])
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON types."""
        return asdict(self)


def newest(run: Curve, reference: Curve | None, unit: str, digits: int = 3) -> str:
    """The run's newest value, and the reference's at the same place."""
    good = np.flatnonzero(run.finite)
    if not len(good):
        return "No finite value yet." if len(run) else "No value yet."
    last = good[-1]
    value = float(run.mean[last])
    words = f"Newest: {formatting.number(value, digits)} {unit}".rstrip()
    if reference is not None and reference.finite.sum() > 1:
        k = reference.finite
        x = float(run.x[last])
        if reference.x[k][0] <= x <= reference.x[k][-1]:
            beside = float(np.interp(x, reference.x[k], reference.mean[k]))
            words += f", reference {formatting.number(beside, digits)}"
    if run.spoilt.any():
        words += f"; {int(run.spoilt.sum())} places with NaN or infinity, marked at the foot"
    return words + "."
