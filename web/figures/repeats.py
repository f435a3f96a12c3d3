"""The share of rows that had been read before, over a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from web.figures.curve import Curve, Trace, fade, line
from web.figures.layout import AxisKind, Figure, Mark, figure, frame
from web.figures.palette import Palette


@dataclass(frozen=True, slots=True)
class Share:
    """Of `readings` between two places of the axis, `value` (0 to 1; NaN: no readings) were repeats."""

    start: float
    end: float
    value: float
    readings: int


def repeats_figure(
    shares: Sequence[tuple[str, Sequence[Share]]],
    *,
    palette: Palette,
    axis: AxisKind,
    marks: Sequence[Mark] = (),
    x_range: tuple[float, float] | None = None,
) -> Figure:
    """Steps from 0 to 100 %, a line for each kind of fingerprint."""
    traces: list[Trace] = []
    looks = ((palette.run, "solid"), (palette.heldout, "dash"))
    for (name, found), (color, dash) in zip(shares, looks, strict=False):
        x = np.asarray([place for one in found for place in (one.start, one.end)], np.float64)
        y = np.repeat(np.asarray([one.value for one in found], np.float64), 2)
        curve = Curve(x, y, y, y, np.zeros(len(x), np.bool_))
        traces.append(line(curve, name, color, width=2, dash=dash, fill="tozeroy", fillcolor=fade(color, 0.12)))
    top = max((one.value for _, found in shares for one in found if np.isfinite(one.value)), default=0.0)
    y_range = [0.0, min(1.04, max(1.15 * top, 0.01))]
    layout = frame(palette, axis, y_title="share read before", x_range=x_range, y_range=y_range, marks=marks)
    layout["yaxis"] |= {"tickformat": ".0%" if y_range[1] > 0.08 else ".1%", "hoverformat": ".2%"}
    return figure(traces, layout)
