"""Training loss of a run, laid over its reference with the tolerance about it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from web.figures.curve import Curve, Trace, band, fade, line, rug, spread, value_range
from web.figures.layout import AxisKind, Figure, Mark, figure, frame
from web.figures.palette import Palette


def loss_figure(
    run: Curve,
    reference: Curve | None,
    *,
    palette: Palette,
    axis: AxisKind,
    run_means: Curve | None = None,
    reference_means: Curve | None = None,
    tolerance: float | None = None,
    marks: Sequence[Mark] = (),
    x_range: tuple[float, float] | None = None,
    y_title: str = "nats per token",
    run_name: str = "run",
    reference_name: str = "reference",
    branches: Sequence[tuple[str, Curve]] = (),
    superseded: Curve | None = None,
    log: bool = False,
) -> Figure:
    """Block means (`…_means`) are the strong lines where given, and the points stay faint behind them.

    The tolerance (in the unit of the loss) is drawn about the reference's block means, else about its points.
    `branches` are forks of the run, or what it was forked from, with their names; `superseded` is what later starts
    of the run have replaced.
    """
    run, reference = run.near(x_range), reference and reference.near(x_range)
    run_means, reference_means = (
        run_means and run_means.near(x_range),
        reference_means and reference_means.near(x_range),
    )
    traces: list[Trace] = []
    drawn = [run]
    if reference is not None and len(reference):
        center = reference if reference_means is None else reference_means
        if tolerance is not None:
            traces += band(
                center.x,
                center.mean - tolerance,
                center.mean + tolerance,
                fade(palette.tolerance, 0.22),
                name=f"tolerance ±{tolerance:.3g}",
            )
        traces += spread(reference, fade(palette.reference, 0.18))
        traces += _lines(reference, reference_means, reference_name, palette.reference, "dash")
        traces += rug(reference, palette)
        drawn.append(reference)
    for number, (name, branch) in enumerate(branches):
        traces.append(line(branch, name, palette.branch, width=1.2, dash=("dot", "dashdot", "longdash")[number % 3]))
        drawn.append(branch)
    if superseded is not None and len(superseded):
        marker = {"color": palette.muted, "symbol": "x-thin-open", "size": 4, "opacity": 0.7}
        traces.append(line(superseded, "superseded", palette.muted, mode="markers", marker=marker))
    traces += spread(run, fade(palette.run, 0.22))
    traces += _lines(run, run_means, run_name, palette.run, "solid")
    traces += rug(run, palette)
    if x_range is not None:
        drawn = [curve.between(*x_range) for curve in drawn]
    means = [m for m in (run_means, reference_means) if m is not None]
    shown = [m if x_range is None else m.between(*x_range) for m in means]
    settled = [float(v) for m in shown for v in m.mean[len(m) // 8 :] if np.isfinite(v)]
    y_range = value_range(drawn, include=settled)
    layout = frame(palette, axis, y_title=y_title, x_range=x_range, y_range=y_range, marks=marks, log=log)
    return figure(traces, layout)


def _lines(points: Curve, means: Curve | None, name: str, color: str, dash: str) -> list[Trace]:
    if means is None or len(means) < 2:
        return [line(points, name, color, width=1.6, dash=dash)]
    faint = line(points, name, fade(color, 0.32), width=1, showlegend=False, hoverinfo="skip")
    return [faint, line(means, name, color, width=2.2, dash=dash)]
