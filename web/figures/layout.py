"""The frame every figure shares: axes, fonts, legend, and the marks of alerts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from web.figures.curve import RUG_AXIS, Trace, plain
from web.figures.palette import Palette, fade

Figure = dict[str, Any]
AxisKind = Literal["tokens", "steps", "time"]

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Mark:
    """One alert on the x axis: where its cause began (earliest, latest), and where it was raised."""

    onset: tuple[float, float]
    raised: float
    label: str
    open: bool = True


def frame(
    palette: Palette,
    axis: AxisKind,
    *,
    y_title: str,
    x_range: tuple[float, float] | None = None,
    y_range: Sequence[float] | None = None,
    marks: Sequence[Mark] = (),
    y_format: str = ".4~f",
    legend: bool = True,
    log: bool = False,
) -> dict[str, Any]:
    """A layout. `uirevision` changes only with the axis, so that new data keeps the reader's zoom.

    On the axis "time" x is in milliseconds since 1970, UTC. With `log` the vertical axis is logarithmic; `y_range` is
    in the values' own unit all the same.
    """
    tick = {"color": palette.muted, "size": 11}
    x: dict[str, Any] = {
        "title": {"text": axis, "font": tick, "standoff": 4},
        "gridcolor": palette.grid,
        "linecolor": palette.grid,
        "zeroline": False,
        "tickfont": tick,
        "exponentformat": "B" if axis == "tokens" else "none",
        "separatethousands": axis == "steps",
        "nticks": 8,
        "automargin": False,
        "showspikes": True,
        "spikemode": "across",
        "spikethickness": 1,
        "spikedash": "dot",
        "spikecolor": palette.muted,
        "spikesnap": "cursor",
    }
    y: dict[str, Any] = {
        "title": {"text": plain(y_title), "font": tick, "standoff": 6},
        "gridcolor": palette.grid,
        "zeroline": False,
        "tickfont": tick,
        "hoverformat": y_format,
        "nticks": 7,
        "exponentformat": "none",
    }
    if axis == "time":
        x |= {"type": "date", "title": {"text": "wall time, UTC", "font": tick, "standoff": 4}, "nticks": 6}
    if x_range is not None:
        x["range"] = list(x_range)
    if log:
        y |= {"type": "log", "nticks": 5}
        y_range = _decades(y_range)
    if y_range is not None:
        y["range"] = list(y_range)
    layout: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "color": palette.ink, "size": 12},
        "margin": {"l": 58, "r": 14, "t": 30 if legend else 10, "b": 40},
        "xaxis": x,
        "yaxis": y,
        f"yaxis{RUG_AXIS[1:]}": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": palette.surface,
            "bordercolor": palette.grid,
            "font": {"color": palette.ink, "size": 12},
            "namelength": 40,
        },
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "itemwidth": 30,
            "x": 0,
            "y": 1.0,
            "xanchor": "left",
            "yanchor": "bottom",
            "font": {"size": 11, "color": palette.ink},
            "bgcolor": "rgba(0,0,0,0)",
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": palette.muted, "activecolor": palette.ink},
        "separators": ".,",
        "uirevision": axis,
        "shapes": [],
        "annotations": [],
    }
    for mark in marks:
        add_mark(layout, mark, palette, x_range)
    return layout


def _decades(y_range: Sequence[float] | None) -> list[float] | None:
    """A range for a logarithmic axis; None, so that Plotly chooses, where nothing of it is above nought."""
    if y_range is None or y_range[1] <= 0:
        return None
    low = y_range[0] if y_range[0] > 0 else y_range[1] / 1000
    return [math.log10(low), math.log10(y_range[1])]


def add_mark(layout: dict[str, Any], mark: Mark, palette: Palette, x_range: tuple[float, float] | None = None) -> None:
    """Shade an alert's onset interval, draw its latest edge, and draw where it was raised."""
    low, high = mark.onset
    late = x_range is not None and high > (x_range[0] + x_range[1]) / 2  # the label then stands to the left of the line
    tall: dict[str, Any] = {"yref": "paper", "y0": 0, "y1": 1}
    layout["shapes"] += [
        {
            "type": "rect",
            "name": "onset",
            "x0": low,
            "x1": high,
            "fillcolor": fade(palette.onset, 0.16),
            "line": {"width": 0},
            "layer": "below",
        }
        | tall,
        {
            "type": "line",
            "name": "onset",
            "x0": high,
            "x1": high,
            "line": {"color": palette.onset, "width": 1.5, "dash": "dash"},
        }
        | tall,
        {
            "type": "line",
            "name": "alert",
            "x0": mark.raised,
            "x1": mark.raised,
            "line": {"color": palette.alert, "width": 1.5, "dash": "solid" if mark.open else "dot"},
        }
        | tall,
    ]
    layout["annotations"].append(
        {
            "name": "alert",
            "x": high,
            "y": 1,
            "yref": "paper",
            "xanchor": "right" if late else "left",
            "yanchor": "top",
            "xshift": -4 if late else 4,
            "showarrow": False,
            "align": "left",
            "text": plain(mark.label),
            "font": {"size": 11, "color": palette.ink},
            "bgcolor": fade(palette.surface, 0.85),
            "bordercolor": palette.onset,
            "borderwidth": 1,
            "borderpad": 2,
        }
    )


def figure(traces: Sequence[Trace], layout: dict[str, Any]) -> Figure:
    """What Plotly.react takes."""
    return {"data": list(traces), "layout": layout}
