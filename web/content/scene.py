"""What all figures of one run share: the run, its reference, the horizontal axis, and the alerts to mark."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
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
from web.content.choices import Choices
from web.content.headline import onset
from web.content.ruler import Ruler
from web.figures.curve import MAX_POINTS, Curve, near
from web.figures.layout import AxisKind, Mark
from web.figures.palette import Palette

TRAIN = "train/ce_loss"
TIME = "axis/time"


@dataclass(frozen=True, slots=True)
class Scene:
    """One run as its figures see it. `x_range` is the part of the axis that is shown, `steps` the run's steps (first,
    last) that a reader's window holds: None where all are shown."""

    session: Session
    run: Run
    series: SeriesRepository
    choices: Choices
    ruler: Ruler
    palette: Palette
    x_range: tuple[float, float] | None
    steps: tuple[int, int] | None
    marks: tuple[Mark, ...]
    reference: Reference | None
    content: Description | None
    view: ReferenceView | None
    train: Overview | None = None  # of the whole run's training loss, which places everything

    @property
    def axis(self) -> AxisKind:
        """The horizontal axis."""
        return self.ruler.kind

    def overview(self, run_id: int, metric: str) -> Overview | None:
        """The live points of a metric in at most MAX_POINTS buckets: in a window that is small enough, each point."""
        known = self.train if run_id == self.run.id and metric == TRAIN else None
        found = known or self.series.overview(run_id, metric, points=MAX_POINTS)
        if found is None or not len(found):
            return None
        if self.steps is None or run_id != self.run.id or found.count.max() == 1:  # each point is there already
            return found
        first, last = self.steps
        return self.series.overview(run_id, metric, points=MAX_POINTS, from_step=first, to_step=last)

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
        x, values = x[k], series.values[k]
        beside = near(x, self.x_range)
        return Curve.of(x[beside], values[beside])

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


def set_scene(session: Session, run: Run, choices: Choices, palette: Palette) -> Scene:
    """Look up everything that the figures of a run share."""
    series = SeriesRepository(session)
    train = series.overview(run.id, TRAIN, points=MAX_POINTS)
    placing = train
    if train is None or not len(train):
        names = series.names(run.id)
        placing = series.overview(run.id, names[0], points=MAX_POINTS) if names else None
    times = series.overview(run.id, TIME, points=MAX_POINTS) if choices.axis == "time" else None
    ruler = Ruler.from_overviews(choices.axis, placing, times)
    view = None
    with contextlib.suppress(UnknownReferenceError):
        view = reference_view(session, run)
    reference = ReferenceRepository(session).current(run.reference) if run.reference else None
    return Scene(
        session=session,
        run=run,
        series=series,
        choices=choices,
        ruler=ruler,
        palette=palette,
        x_range=choices.window or ruler.range(),
        steps=ruler.steps_of(choices.window) if choices.window else None,
        marks=_marks(session, run, ruler),
        reference=reference,
        content=description(reference) if reference else None,
        view=view,
        train=train,
    )


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
