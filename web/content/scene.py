"""What all figures of one run share: the run, its reference, the horizontal axis, and the alerts to mark."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from service.alerts.repository import AlertRepository
from service.compare.align import level
from service.database.models import Reference, Run
from service.detect.inputs import Series
from service.judgements.view import ReferenceView, UnknownReferenceError, reference_view
from service.references.describe import description
from service.references.description import Description
from service.references.repository import ReferenceRepository
from service.series.repository import Overview, SeriesRepository
from web import formatting
from web.content.headline import onset
from web.figures.curve import MAX_POINTS, Curve, Floats
from web.figures.layout import AxisKind, Mark
from web.figures.palette import Palette

TRAIN = "train/ce_loss"
MARGIN = 0.03  # of the run's width, left free on both sides
AROUND = 1.0  # widths of the run to both sides in which the reference is still drawn


@dataclass(frozen=True, slots=True)
class Ruler:
    """Places points on the horizontal axis. `steps` and `tokens` (n,) are the run's own, ascending.

    A reference is placed at equal tokens: on the step axis that is the run's step at the same tokens.
    """

    kind: AxisKind
    steps: Floats
    tokens: Floats

    def of(self, steps: NDArray[np.int64], tokens: Floats) -> Floats:
        """Points of the run, (n,); NaN where their tokens are not known."""
        return tokens if self.kind == "tokens" else steps.astype(np.float64)

    def of_reference(self, steps: NDArray[np.int64], tokens: Floats) -> Floats:
        """Points of the reference, (n,)."""
        if self.kind == "tokens":
            return tokens
        if len(self.tokens) < 2:
            return steps.astype(np.float64)
        pace = (self.steps[-1] - self.steps[0]) / (self.tokens[-1] - self.tokens[0])
        placed = np.interp(tokens, self.tokens, self.steps)
        placed += np.minimum(tokens - self.tokens[0], 0) * pace + np.maximum(tokens - self.tokens[-1], 0) * pace
        return placed

    def of_step(self, step: float) -> float:
        """One step of the run."""
        if self.kind == "steps" or len(self.steps) == 0:
            return float(step)
        return float(np.interp(step, self.steps, self.tokens))

    def range(self) -> tuple[float, float] | None:
        """The run's extent with a margin, None where nothing is known yet."""
        ends = self.tokens if self.kind == "tokens" else self.steps
        if len(ends) == 0:
            return None
        low, high = float(ends[0]), float(ends[-1])
        pad = MARGIN * (high - low) or max(abs(high) * 0.1, 1.0)
        return low - pad, high + pad


@dataclass(frozen=True, slots=True)
class Scene:
    """One run as its figures see it. `newest` maps rules to their latest judgement's JSON."""

    session: Session
    run: Run
    series: SeriesRepository
    ruler: Ruler
    palette: Palette
    x_range: tuple[float, float] | None
    marks: tuple[Mark, ...]
    reference: Reference | None
    content: Description | None
    view: ReferenceView | None

    @property
    def axis(self) -> AxisKind:
        """The horizontal axis."""
        return self.ruler.kind

    def overview(self, run_id: int, metric: str) -> Overview | None:
        """The live points of a metric in at most MAX_POINTS buckets."""
        found = self.series.overview(run_id, metric, points=MAX_POINTS)
        return found if found is not None and len(found) else None

    def curve(self, overview: Overview | None, *, reference: bool = False) -> Curve:
        """An overview as a curve; buckets without a place on the axis are left out."""
        if overview is None:
            return Curve.of([], [])
        place = self.ruler.of_reference if reference else self.ruler.of
        x = place(overview.steps, overview.tokens)
        k = np.isfinite(x)
        spoilt = overview.non_finite > 0
        return Curve(x[k], overview.mean[k], overview.minimum[k], overview.maximum[k], spoilt[k])

    def reference_curve(self, metric: str) -> Curve | None:
        """The reference's exact points of a loss, near the run; None where it has none."""
        series = self.view.metrics.get(metric) if self.view else None
        if series is None or len(series) == 0:
            return None
        x = self.ruler.of_reference(series.steps, series.tokens)
        k = np.isfinite(x)
        if self.x_range is not None:
            width = self.x_range[1] - self.x_range[0]
            k &= (x >= self.x_range[0] - AROUND * width) & (x <= self.x_range[1] + AROUND * width)
        return Curve.of(x[k], series.values[k])

    def tolerance(self, metric: str) -> float | None:
        """The declared tolerance of a metric."""
        found = self.view.tolerances.get(metric) if self.view else None
        return None if found is None else found.value

    @property
    def reference_run(self) -> Run | None:
        """The run that holds the reference's curves of this stage."""
        if self.reference is None:
            return None
        return ReferenceRepository(self.session).run_of(self.reference.id, self.run.stage)


def local_level(curve: Curve) -> Curve | None:
    """A smooth line through a noisy curve, as judgements smooth a reference (LOWESS); None below 10 points."""
    k = curve.finite
    if k.sum() < 10:
        return None
    x = curve.x[k]
    fitted = level(Series(np.arange(len(x)), x, curve.mean[k]), "noisy")
    return Curve.of(fitted.tokens, fitted.values)


def set_scene(session: Session, run: Run, kind: AxisKind, palette: Palette) -> Scene:
    """Look up everything that the figures of a run share."""
    series = SeriesRepository(session)
    train = series.overview(run.id, TRAIN, points=MAX_POINTS)
    if train is None or not len(train):
        names = series.names(run.id)
        train = series.overview(run.id, names[0], points=MAX_POINTS) if names else None
    ruler = _ruler(kind, train)
    view = None
    with contextlib.suppress(UnknownReferenceError):
        view = reference_view(session, run)
    reference = ReferenceRepository(session).current(run.reference) if run.reference else None
    return Scene(
        session=session,
        run=run,
        series=series,
        ruler=ruler,
        palette=palette,
        x_range=ruler.range(),
        marks=_marks(session, run, ruler),
        reference=reference,
        content=description(reference) if reference else None,
        view=view,
    )


def _ruler(kind: AxisKind, overview: Overview | None) -> Ruler:
    if overview is None:
        return Ruler(kind, np.empty(0), np.empty(0))
    k = np.isfinite(overview.tokens)
    if kind == "steps" and not k.any():
        return Ruler(kind, overview.steps.astype(np.float64), np.empty(0))
    return Ruler(kind, overview.steps[k].astype(np.float64), overview.tokens[k])


def _marks(session: Session, run: Run, ruler: Ruler) -> tuple[Mark, ...]:
    """The run's alerts of curve and data, the newest few."""
    rows, _ = AlertRepository(session).page(run=run.uuid, family="curve_and_data", limit=5)
    marks = [_mark(row.alert.judgements, row.alert.opened_step, row.alert.state, ruler) for row in rows]
    return tuple(mark for mark in marks if mark is not None)


def _mark(judgements: Mapping[str, Any], opened_step: int, state: str, ruler: Ruler) -> Mark | None:
    began = onset(judgements)
    if began is None:
        return None
    steps, tokens = began
    low, high = (ruler.of_step(step) for step in steps)
    if ruler.kind == "tokens" and tokens is not None:
        low, high = tokens
    return Mark((low, high), ruler.of_step(opened_step), f"since step {formatting.span(steps)}", state != "resolved")
