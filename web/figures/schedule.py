"""A learning-rate schedule, or any other single curve of a reference."""

from __future__ import annotations

from web.figures.curve import Curve, fade, line, rug, spread, value_range
from web.figures.layout import AxisKind, Figure, figure, frame
from web.figures.palette import Palette


def curve_figure(
    curve: Curve, *, palette: Palette, axis: AxisKind, y_title: str, name: str, y_format: str = ".4~f"
) -> Figure:
    """One curve with the spread of its buckets."""
    traces = [*spread(curve, fade(palette.reference, 0.25)), line(curve, name, palette.run), *rug(curve, palette)]
    layout = frame(
        palette, axis, y_title=y_title, y_range=value_range([curve], cut=0.01), y_format=y_format, legend=False
    )
    return figure(traces, layout)
