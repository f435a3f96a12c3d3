"""Ribbons of trainer starts under the curves: restarts, resizes and changes of hardware.

One ribbon of its own is labelled; under every other chart lies a thin strip of the same blocks, a subplot on the
chart's own horizontal axis, so that it stays aligned while a reader zooms or moves the chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from web.figures.curve import MAX_POINTS, Trace, column, plain
from web.figures.layout import AxisKind, Figure, figure, frame
from web.figures.palette import Palette

STRIP_AXIS = "y8"
STRIP = 0.055  # of a chart's height
STRIP_GAP = 0.025


@dataclass(frozen=True, slots=True)
class SegmentBar:
    """One segment from `start` to `end` on the x axis. `label` is short, `details` are lines for the hover box."""

    start: float
    end: float
    label: str
    details: Sequence[str] = ()


def segments_figure(
    bars: Sequence[SegmentBar], *, palette: Palette, axis: AxisKind, x_range: tuple[float, float] | None = None
) -> Figure:
    """Alternating blocks, each labelled where it has room. Beyond MAX_POINTS segments only the newest are drawn."""
    bars = bars[-MAX_POINTS:]
    layout = frame(palette, axis, y_title="", x_range=x_range, y_range=(-0.5, 0.5), legend=False)
    layout["yaxis"] |= {"visible": False, "fixedrange": True}
    layout["margin"] |= {"t": 4, "b": 22}
    layout["xaxis"] |= {"title": {"text": ""}, "showgrid": False, "showspikes": False}
    layout["hovermode"] = "closest"
    layout["bargap"] = 0
    if not bars:
        return figure([], layout)
    labels: Trace = {
        "text": [plain(bar.label) for bar in bars],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "textfont": {"size": 11, "color": palette.ink},
        "constraintext": "inside",
    }
    return figure([_blocks(bars, palette) | labels], layout)


def strip(bars: Sequence[SegmentBar], palette: Palette) -> Trace:
    """The same blocks for the foot of another chart that `add_strip` has made room in."""
    return _blocks(bars[-MAX_POINTS:], palette) | {"yaxis": STRIP_AXIS, "showlegend": False}


def add_strip(layout: dict[str, Any]) -> None:
    """Make room for a strip at the foot of a chart. Marks of alerts, which span the whole height, reach into it."""
    layout["yaxis"]["domain"] = [STRIP + STRIP_GAP, 1.0]
    layout["xaxis"]["anchor"] = STRIP_AXIS
    layout[f"yaxis{STRIP_AXIS[1:]}"] = {
        "domain": [0.0, STRIP],
        "range": [-0.5, 0.5],
        "visible": False,
        "fixedrange": True,
    }


def _blocks(bars: Sequence[SegmentBar], palette: Palette) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": "segments",
        "base": column(np.asarray([bar.start for bar in bars], np.float64)),
        "x": column(np.asarray([max(bar.end - bar.start, 0.0) for bar in bars], np.float64)),
        "y": [0.0] * len(bars),
        "width": [0.8] * len(bars),
        "hovertext": ["<br>".join(plain(line) for line in (bar.label, *bar.details)) for bar in bars],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {
            "color": [palette.segment if i % 2 == 0 else palette.segment_alternate for i in range(len(bars))],
            "line": {"color": palette.surface, "width": 1.5},
        },
    }
