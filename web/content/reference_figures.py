"""The curves of one stage of a reference: train loss, held-out losses, learning rate."""

from __future__ import annotations

import numpy as np
from sqlalchemy.orm import Session

from service.database.models import Reference
from service.references.describe import description
from service.references.description import Description, Stage
from service.references.repository import ReferenceRepository
from service.references.schedule import learning_rate
from service.series.repository import Overview, SeriesRepository
from web import formatting
from web.content.panels import Group, Panel, newest
from web.content.scene import TRAIN
from web.figures.curve import MAX_POINTS, Curve
from web.figures.layout import AxisKind
from web.figures.palette import Palette
from web.figures.schedule import curve_figure


def stage_figures(session: Session, reference: Reference, stage_name: str, axis: AxisKind, palette: Palette) -> Group:
    """Every loss that the stage has, and its schedule from the formulas."""
    content = description(reference)
    stage = content.stage(stage_name)
    run = ReferenceRepository(session).run_of(reference.id, stage_name)
    if stage is None or run is None:
        return Group(note="No public series is at hand for this stage.")
    repository = SeriesRepository(session)
    titles = {entry.metric: f"held-out loss, {entry.title or entry.name}" for entry in content.heldout}
    titles |= {task.metric: task.title or task.key for task in content.tasks}
    titles[TRAIN] = "training loss"
    names = sorted(repository.names(run.id), key=lambda name: (name != TRAIN, not name.startswith("heldout/"), name))
    overviews = repository.overviews(run.id, names, points=MAX_POINTS)
    panels = [
        _curve(overview, f"{stage_name} {metric}", f"{stage_name}: {titles.get(metric, metric)}", axis, palette)
        for metric, overview in overviews.items()
    ]
    return Group(panels + _schedule(content, stage, axis, palette))


def _curve(overview: Overview, key: str, title: str, axis: AxisKind, palette: Palette) -> Panel:
    x = overview.tokens if axis == "tokens" else overview.steps.astype(np.float64)
    k = np.isfinite(x)
    spoilt = np.asarray(overview.non_finite > 0)
    curve = Curve(x[k], overview.mean[k], overview.minimum[k], overview.maximum[k], spoilt[k])
    share = key.endswith("/accuracy")
    unit = "accuracy" if share else "nats per token"
    figure = curve_figure(curve, palette=palette, axis=axis, y_title=unit, name="reference")
    words = f"{formatting.number(int(overview.count.sum()))} points. {newest(curve, None, '' if share else 'nats')}"
    return Panel(key, title, words, figure)


def _schedule(content: Description, stage: Stage, axis: AxisKind, palette: Palette) -> list[Panel]:
    steps = np.unique(np.linspace(0, stage.steps, MAX_POINTS // 2).round())
    rates = learning_rate(content.schedule, stage.name, steps)
    if rates is None:
        return []
    curve = Curve.of(steps if axis == "steps" else steps * stage.tokens_per_step + stage.token_offset, rates)
    figure = curve_figure(
        curve, palette=palette, axis=axis, y_title="learning rate", name="learning rate", y_format=".4~e"
    )
    figure["layout"]["yaxis"] |= {"exponentformat": "e", "tickformat": ".1e"}
    pieces = sum(piece.stage == stage.name for piece in content.schedule)
    words = (
        f"Peak {rates.max():.3g}, at the end {rates[-1]:.3g}; {pieces} piece{'s' if pieces > 1 else ''}, by formula."
    )
    return [Panel(f"{stage.name} schedule", f"{stage.name}: learning rate", words, figure)]
