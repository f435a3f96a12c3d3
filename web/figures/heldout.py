"""One held-out loss of a run and its reference: few points, so each is marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from web.figures.curve import MARKED, MAX_POINTS, Curve, Trace, band, fade, line, rug, spread, value_range
from web.figures.layout import AxisKind, Figure, Mark, figure, frame
from web.figures.palette import Palette


def heldout_figure(
    run: Curve,
    reference: Curve | None,
    *,
    palette: Palette,
    axis: AxisKind,
    tolerance: float | None = None,
    marks: Sequence[Mark] = (),
    x_range: tuple[float, float] | None = None,
    y_title: str = "nats per token",
    log: bool = False,
) -> Figure:
    """Run over reference (± tolerance, in nats, where one is known)."""
    run, reference = run.near(x_range), reference and reference.near(x_range)
    traces: list[Trace] = []
    drawn = [run]
    if reference is not None and len(reference):
        if tolerance is not None:
            low, high = reference.mean - tolerance, reference.mean + tolerance
            name = f"tolerance ±{tolerance:.3g}"
            traces += band(reference.x, low, high, fade(palette.tolerance, 0.22), name=name)
        traces.append(
            line(
                reference,
                "reference",
                palette.reference,
                dash="dash",
                **_markers(reference, palette.reference, "circle-open"),
            )
        )
        traces += rug(reference, palette)
        drawn.append(reference)
    if len(run):
        traces += spread(run, fade(palette.heldout, 0.2))
        traces.append(line(run, "run", palette.heldout, width=2, **_markers(run, palette.heldout, "diamond")))
        traces += rug(run, palette)
    if x_range is not None:
        drawn = [curve.between(*x_range) for curve in drawn]
    y_range = value_range(drawn, cut=0.02 if max(map(len, drawn)) > MARKED else 0.0)
    layout = frame(palette, axis, y_title=y_title, x_range=x_range, y_range=y_range, marks=marks, log=log)
    return figure(traces, layout)


def _markers(curve: Curve, color: str, symbol: str) -> dict[str, Any]:
    assert len(curve) <= MAX_POINTS
    if len(curve) > MARKED:
        return {}
    return {"mode": "lines+markers", "marker": {"color": color, "symbol": symbol, "size": 6}}
