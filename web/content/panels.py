"""What a group of figures answers with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from web import formatting
from web.figures.curve import Curve, Trace
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
    """Figures that stand together; `note` says what is missing and what to do. `ribbon` is a further trace of each of
    them, sent once: the run's segments, at its foot."""

    panels: list[Panel] = field(default_factory=list[Panel])
    note: str = ""
    ribbon: Trace | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON types."""
        return asdict(self)


def newest(
    run: Curve, reference: Curve | None, unit: str, digits: int = 3, *, window: tuple[float, float] | None = None
) -> str:
    """The run's newest value, and the reference's at the same place; in a reader's window, the last one there."""
    name = "Newest"
    if window is not None:
        name, run = "Last in this window", run.between(*window)
    good = np.flatnonzero(run.finite)
    if not len(good):
        where = "yet" if window is None else "in this window"
        return f"No finite value {where}." if len(run) else f"No value {where}."
    last = good[-1]
    value = float(run.mean[last])
    words = f"{name}: {formatting.number(value, digits)} {unit}".rstrip()
    if reference is not None and reference.finite.sum() > 1:
        k = reference.finite
        x = float(run.x[last])
        if reference.x[k][0] <= x <= reference.x[k][-1]:
            beside = float(np.interp(x, reference.x[k], reference.mean[k]))
            words += f", reference {formatting.number(beside, digits)}"
    if run.spoilt.any():
        words += f"; {int(run.spoilt.sum())} places with NaN or infinity, marked at the foot"
    return words + "."
