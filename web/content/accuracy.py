"""The mean of the accuracies, and one small figure per task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from web import formatting
from web.content.panels import Group, Panel
from web.content.scene import Scene
from web.figures.downstream import Accuracy, accuracy_figure, mean_of

NONE_YET = "No accuracy yet: log downstream/<task>/accuracy at each evaluation."


@dataclass(frozen=True, slots=True)
class TaskSeries:
    """One task with the accuracies of run and reference (None where the reference has none)."""

    key: str
    title: str
    metric: str
    run: Accuracy
    reference: Accuracy | None


def task_series(scene: Scene) -> list[TaskSeries]:
    """The reference's tasks in its order, then what else the run logs; only those with points of the run."""
    named = {task.metric: task for task in (scene.content.tasks if scene.content else [])}
    logged = [n for n in scene.series.names(scene.run.id) if n.startswith("downstream/") and n.endswith("/accuracy")]
    metrics = [*(m for m in named if m in logged), *(m for m in logged if m not in named)]
    beside = scene.reference_run
    result: list[TaskSeries] = []
    for metric in metrics:
        task = named.get(metric)
        key = task.key if task else metric.removeprefix("downstream/").removesuffix("/accuracy")
        items = task.items if task else None
        run = _accuracy(scene, scene.run.id, metric, items, reference=False)
        reference = _accuracy(scene, beside.id, metric, items, reference=True) if beside else None
        title = task.title if task and task.title else key
        has = reference is not None and len(reference.x) > 0
        result.append(TaskSeries(key, title, metric, run, reference if has else None))
    return result


def _accuracy(scene: Scene, run_id: int, metric: str, items: int | None, *, reference: bool) -> Accuracy:
    curve = scene.curve(scene.overview(run_id, metric), reference=reference)
    return Accuracy.of_task(curve.x, curve.mean, items)


def accuracy(scene: Scene) -> Group:
    """The mean over all tasks."""
    found = task_series(scene)
    if not found:
        return Group(note=NONE_YET)
    run = mean_of({task.key: task.run for task in found})
    reference = None
    if all(task.reference is not None for task in found):
        reference = mean_of({task.key: task.reference for task in found if task.reference is not None})
    figure = accuracy_figure(
        run,
        reference,
        palette=scene.palette,
        axis=scene.axis,
        tolerance=scene.tolerance("downstream/mean/accuracy"),
        marks=scene.marks,
        x_range=scene.x_range,
    )
    words = _newest(run, reference, scene.choices.window)
    if reference is None:
        words += _why_no_reference(scene)
    return Group([Panel("mean", f"Mean of {len(found)} accuracies", words, figure)])


def tasks(scene: Scene) -> Group:
    """Each task against the reference."""
    panels: list[Panel] = []
    for task in task_series(scene):
        figure = accuracy_figure(
            task.run,
            task.reference,
            palette=scene.palette,
            axis=scene.axis,
            tolerance=scene.tolerance(task.metric),
            marks=scene.marks,
            x_range=scene.x_range,
            legend=False,
        )
        panels.append(Panel(task.metric, task.title, _newest(task.run, task.reference, scene.choices.window), figure))
    return Group(panels)


def _newest(run: Accuracy, reference: Accuracy | None, window: tuple[float, float] | None) -> str:
    known = np.isfinite(run.value)
    if window is not None:
        known &= (run.x >= window[0]) & (run.x <= window[1])
    good = np.flatnonzero(known)
    if not len(good):
        return "No checkpoint with all tasks yet." if window is None else "No checkpoint with all tasks in this window."
    last = good[-1]
    words = "" if window is None else "Last in this window: "
    words += f"{formatting.percent(float(run.value[last]))}"
    if run.error[last] > 0:
        words += f" ± {formatting.percent(float(run.error[last]))}"
    if reference is not None and len(reference.x) and reference.x[0] <= run.x[last] <= reference.x[-1]:
        words += f", reference {formatting.percent(float(np.interp(run.x[last], reference.x, reference.value)))}"
    return words + "."


def _why_no_reference(scene: Scene) -> str:
    if scene.content is None:
        return ""
    if scene.content.tasks and not any(task.published for task in scene.content.tasks):
        return " No public accuracies exist for this reference, so these cannot be judged."
    return " The reference has no values for some of these tasks."
