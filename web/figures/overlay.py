"""One metric of several runs in one picture."""

from __future__ import annotations

from collections.abc import Sequence

from web.figures.curve import MARKED, Curve, Trace, fade, line, rug, spread, value_range
from web.figures.layout import AxisKind, Figure, figure, frame
from web.figures.palette import Palette

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")


def overlay_figure(
    curves: Sequence[tuple[str, Curve]],
    means: Sequence[Curve | None],
    *,
    palette: Palette,
    axis: AxisKind,
    y_title: str,
    x_range: tuple[float, float] | None = None,
    log: bool = False,
) -> Figure:
    """Each curve in a colour and a dash of its own, so that colour alone tells nothing; where `means` has a curve it
    is the strong line and the points stay faint behind it."""
    traces: list[Trace] = []
    for number, ((name, curve), mean) in enumerate(zip(curves, means, strict=True)):
        if not len(curve):
            continue
        color, dash = palette.runs[number % len(palette.runs)], DASHES[number % len(DASHES)]
        traces += spread(curve, fade(color, 0.14))
        if mean is not None and len(mean) > 1:
            traces.append(line(curve, name, fade(color, 0.25), width=1, showlegend=False, hoverinfo="skip"))
            traces.append(line(mean, name, color, width=2.2, dash=dash))
        else:
            few = {"mode": "lines+markers"} if len(curve) <= MARKED else {}
            traces.append(line(curve, name, color, width=2, dash=dash, **few))
        traces += rug(curve, palette, name)
    drawn = [curve if x_range is None else curve.between(*x_range) for _, curve in curves]
    low_cut = 0.02 if max((len(curve) for curve in drawn), default=0) > MARKED else 0.0
    y_range = value_range(drawn, cut=low_cut)
    layout = frame(palette, axis, y_title=y_title, x_range=x_range, y_range=y_range, log=log)
    return figure(traces, layout)
