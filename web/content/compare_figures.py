"""The curves of a comparison: each metric once, with a line for every run."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import numpy as np
from sqlalchemy.orm import Session

from service.runs.repository import RunRow
from service.series.repository import SeriesRepository
from web.content.choices import Choices
from web.content.compare import SPEED, STEP_TIME, chosen_rows, shared_metrics, unit_of
from web.content.panels import Group, Panel
from web.content.ruler import Ruler
from web.content.scene import TIME, TRAIN, local_level
from web.figures.curve import MAX_POINTS, Curve
from web.figures.overlay import overlay_figure
from web.figures.palette import Palette

TITLES = {TRAIN: "Training loss", SPEED: "Tokens per second and device", STEP_TIME: "Time of a step"}


def compare_figures(session: Session, uuids: Sequence[UUID], choices: Choices, palette: Palette) -> Group:
    """Every loss, accuracy and the speed, the runs laid over each other.

    Raises:
        NotFoundError: there is no such run.
    """
    rows = chosen_rows(session, uuids)
    panels = [_panel(session, rows, metric, choices, palette) for metric in shared_metrics(session, rows)]
    return Group(panels) if panels else Group(note="These runs have no loss or accuracy yet.")


def _panel(session: Session, rows: list[RunRow], metric: str, choices: Choices, palette: Palette) -> Panel:
    curves = [(row.run.name, _curve(session, row, metric, choices)) for row in rows]
    shown = [(name, curve) for name, curve in curves if len(curve)]
    means = [local_level(curve) if metric in TITLES and choices.smooth else None for _, curve in curves]
    figure = overlay_figure(
        curves,
        means,
        palette=palette,
        axis=choices.axis,
        y_title=unit_of(metric) or "accuracy",
        x_range=choices.window,
        log=choices.log and metric.endswith("loss"),
    )
    title = TITLES.get(metric) or metric.removeprefix("heldout/").removeprefix("downstream/").rpartition("/")[0]
    kind = "Held-out loss: " if metric.startswith("heldout/") else ""
    words = f"{len(shown)} of {len(rows)} runs have it." if len(shown) < len(rows) else "All runs."
    return Panel(metric, kind + title, words, figure)


def _curve(session: Session, row: RunRow, metric: str, choices: Choices) -> Curve:
    series = SeriesRepository(session)
    whole = series.overview(row.run.id, metric, points=MAX_POINTS)
    if whole is None or not len(whole):
        return Curve.of([], [])
    times = series.overview(row.run.id, TIME, points=MAX_POINTS) if choices.axis == "time" else None
    ruler = Ruler.from_overviews(choices.axis, whole, times)
    steps = ruler.steps_of(choices.window) if choices.window is not None and whole.count.max() > 1 else None
    if steps is not None:
        whole = series.overview(row.run.id, metric, points=MAX_POINTS, from_step=steps[0], to_step=steps[1]) or whole
    x = ruler.of(whole.steps, whole.tokens)
    k = np.isfinite(x)
    return Curve(x[k], whole.mean[k], whole.minimum[k], whole.maximum[k], np.asarray(whole.non_finite[k] > 0))
