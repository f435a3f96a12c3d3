"""The gap (run − reference at equal tokens) with its tolerance: train loss in blocks, held-out loss per evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from web.figures.curve import MARKED, Curve, Floats, Trace, band, column, fade, line, near, plain, rug, value_range
from web.figures.layout import AxisKind, Figure, Mark, figure, frame
from web.figures.palette import Palette


@dataclass(frozen=True, slots=True)
class Gap:
    """Differences: `x`, `value`, `low`, `high` float64 (n,). NaN ends: the interval is not known."""

    x: Floats
    value: Floats
    low: Floats
    high: Floats

    @property
    def curve(self) -> Curve:
        """The same as a curve whose extremes are the interval."""
        good = np.isfinite(self.value)
        value = np.where(good, self.value, np.nan)
        low, high = (np.where(np.isfinite(end), end, value) for end in (self.low, self.high))
        return Curve(self.x, value, low, high, ~good)

    def near(self, x_range: tuple[float, float] | None) -> Gap:
        """As `Curve.near`."""
        k = near(self.x, x_range)
        return Gap(self.x[k], self.value[k], self.low[k], self.high[k])


def gap_figure(
    train: Gap,
    *,
    palette: Palette,
    axis: AxisKind,
    heldout: Gap | None = None,
    tolerance: float | None = None,
    marks: Sequence[Mark] = (),
    x_range: tuple[float, float] | None = None,
    train_name: str = "train gap",
    heldout_name: str = "held-out gap",
    y_title: str = "run − reference, nats",
) -> Figure:
    """Both gaps on one axis in nats: train sinking while held-out stays is what memorization looks like."""
    train, heldout = train.near(x_range), None if heldout is None else heldout.near(x_range)
    curves = [train.curve] if heldout is None else [train.curve, heldout.curve]
    if x_range is not None:
        curves = [curve.between(*x_range) for curve in curves]
    include = [0.0] if tolerance is None else [0.0, -1.6 * tolerance, 1.6 * tolerance]
    layout = frame(
        palette,
        axis,
        y_title=y_title,
        x_range=x_range,
        y_range=value_range(curves, include=include),
        marks=marks,
        y_format="+.4~f",
    )
    if tolerance is not None:
        layout["shapes"].insert(
            0,
            {
                "type": "rect",
                "name": "tolerance",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": -tolerance,
                "y1": tolerance,
                "fillcolor": fade(palette.tolerance, 0.2),
                "line": {"width": 0},
                "layer": "below",
            },
        )
    zero = {"color": palette.reference, "width": 1, "dash": "dash"}
    layout["shapes"].append(
        {
            "type": "line",
            "name": "zero",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": 0,
            "y1": 0,
            "line": zero,
            "layer": "below",
        }
    )
    traces: list[Trace] = []
    if tolerance is not None:  # in the legend only: the band itself spans the whole picture
        traces.append(_key(f"tolerance ±{tolerance:.3g}", palette))
    if len(train.x):
        if len(train.x) > 1:
            traces += band(train.x, train.low, train.high, fade(palette.run, 0.25))
        traces.append(line(train.curve, train_name, palette.run, width=2.2))
        traces += rug(train.curve, palette)
    if heldout is not None and len(heldout.x):
        traces += points(heldout, heldout_name, palette.heldout)
        traces += rug(heldout.curve, palette)
    return figure(traces, layout)


def points(gap: Gap, name: str, color: str) -> list[Trace]:
    """Diamonds joined by a thin line, with error bars where the interval is known; many are a line in a band."""
    keep = np.isfinite(gap.value)
    if keep.sum() > MARKED:
        return [*band(gap.x, gap.low, gap.high, fade(color, 0.2)), line(gap.curve, name, color, width=1.2)]
    trace: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(name),
        "x": column(gap.x[keep]),
        "y": column(gap.value[keep]),
        "line": {"color": color, "width": 1.2, "dash": "dot"},
        "marker": {"color": color, "symbol": "diamond", "size": 7},
    }
    up, down = gap.high[keep] - gap.value[keep], gap.value[keep] - gap.low[keep]
    if np.any(np.nan_to_num(up) > 0):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": column(np.nan_to_num(up)),
            "arrayminus": column(np.nan_to_num(down)),
            "color": color,
            "thickness": 1,
            "width": 3,
        }
        ends = zip(gap.low[keep].tolist(), gap.high[keep].tolist(), strict=True)
        trace["text"] = [f"{low:+.4f} to {high:+.4f}".replace("-", "−") if low < high else "" for low, high in ends]
        trace["hovertemplate"] = f"%{{y}} (%{{text}})<extra>{plain(name)}</extra>"
    return [trace]


def _key(name: str, palette: Palette) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [None],
        "y": [None],
        "hoverinfo": "skip",
        "marker": {"symbol": "square", "size": 12, "color": fade(palette.tolerance, 0.4)},
    }
