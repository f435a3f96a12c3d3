"""Downstream accuracies: the mean first, since one checkpoint is enough to judge it, then each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from web.figures.curve import (
    EMPTY,
    MARKED,
    Curve,
    Floats,
    Trace,
    band,
    column,
    fade,
    line,
    near,
    rug,
    value_range,
)
from web.figures.layout import AxisKind, Figure, Mark, figure, frame
from web.figures.palette import Palette


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Accuracies of a task or of a mean of tasks: `x`, `value`, `error` (one standard error), float64 (n,)."""

    x: Floats
    value: Floats
    error: Floats

    @classmethod
    def of_task(cls, x: Floats, value: Floats, items: int | None) -> Accuracy:
        """With the binomial standard error sqrt(p (1 − p) / items); zero where the number of items is not known."""
        share = np.clip(np.nan_to_num(value), 0.0, 1.0)
        error = np.sqrt(share * (1 - share) / items) if items else np.zeros_like(value)
        return cls(x, value, error)

    def near(self, x_range: tuple[float, float] | None) -> Accuracy:
        """As `Curve.near`."""
        k = near(self.x, x_range)
        return Accuracy(self.x[k], self.value[k], self.error[k])

    @property
    def curve(self) -> Curve:
        """Value ± error as a curve."""
        good = np.isfinite(self.value)
        value = np.where(good, self.value, np.nan)
        return Curve(self.x, value, value - self.error, value + self.error, ~good)


NO_ACCURACY = Accuracy(EMPTY.x, EMPTY.x, EMPTY.x)


def mean_of(tasks: Mapping[str, Accuracy]) -> Accuracy:
    """The mean over all tasks where every one of them has a value; its error assumes independent items."""
    if not tasks:
        return NO_ACCURACY
    members = list(tasks.values())
    common = members[0].x
    for member in members[1:]:
        common = np.intersect1d(common, member.x)
    values: list[Floats] = []
    errors: list[Floats] = []
    for member in members:
        at = np.searchsorted(member.x, common)
        values.append(member.value[at])
        errors.append(member.error[at])
    n = len(members)
    return Accuracy(common, np.sum(values, axis=0) / n, np.sqrt(np.sum(np.square(errors), axis=0)) / n)


def accuracy_figure(
    run: Accuracy,
    reference: Accuracy | None,
    *,
    palette: Palette,
    axis: AxisKind,
    tolerance: float | None = None,
    marks: Sequence[Mark] = (),
    x_range: tuple[float, float] | None = None,
    legend: bool = True,
) -> Figure:
    """Run with its sampling error, over the reference ± tolerance where the reference has values."""
    run, reference = run.near(x_range), None if reference is None else reference.near(x_range)
    traces: list[Trace] = []
    drawn = [run.curve]
    if reference is not None and len(reference.x):
        if tolerance is not None:
            low, high = reference.value - tolerance, reference.value + tolerance
            name = f"tolerance ±{tolerance:.3g}"
            traces += band(reference.x, low, high, fade(palette.tolerance, 0.22), name=name)
            drawn.append(Curve(reference.x, reference.value, low, high, ~np.isfinite(reference.value)))
        own: dict[str, Any] = {}
        if len(reference.x) <= MARKED:
            marker = {"color": palette.reference, "symbol": "circle-open", "size": 5}
            own = {"mode": "lines+markers", "marker": marker}
        traces.append(line(reference.curve, "reference", palette.reference, dash="dash", **own))
        traces += rug(reference.curve, palette)
        drawn.append(reference.curve)
    if len(run.x):
        keep = np.isfinite(run.value)
        shown = Curve.of(run.x[keep], run.value[keep])
        few = keep.sum() <= MARKED
        more: dict[str, Any] = {}
        if few:
            more = {"mode": "lines+markers", "marker": {"color": palette.run, "symbol": "diamond", "size": 6}}
        else:
            low, high = run.value - run.error, run.value + run.error
            traces += band(run.x, low, high, fade(palette.run, 0.25))
        trace = line(shown, "run ± standard error", palette.run, **more)
        if few and np.any(run.error[keep] > 0):
            trace["error_y"] = {
                "type": "data",
                "array": column(run.error[keep]),
                "color": fade(palette.run, 0.7),
                "thickness": 1,
                "width": 2,
            }
        traces += [trace, *rug(run.curve, palette)]
    if x_range is not None:
        drawn = [curve.between(*x_range) for curve in drawn]
    layout = frame(
        palette,
        axis,
        y_title="accuracy",
        x_range=x_range,
        y_range=value_range(drawn, cut=0.0),
        marks=marks,
        legend=legend,
    )
    layout["yaxis"]["tickformat"] = ".0%" if _wide(layout["yaxis"].get("range")) else ".1%"
    layout["yaxis"]["hoverformat"] = ".2%"
    if not legend:
        layout["xaxis"]["nticks"], layout["yaxis"]["nticks"] = 3 if axis == "time" else 5, 5
        layout["xaxis"]["tickangle"] = 0
        layout["margin"] |= {"l": 50, "b": 34}
        layout["annotations"] = []  # a small multiple has room for the lines, not for the label
    return figure(traces, layout)


def _wide(y_range: list[float] | None) -> bool:
    return y_range is not None and y_range[1] - y_range[0] > 0.08
