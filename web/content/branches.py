"""Forks of a run, and what it was forked from, as further curves beside its own."""

from __future__ import annotations

import numpy as np

from service.runs.repository import RunRepository
from web.content.scene import Scene, local_level
from web.figures.curve import Curve

MOST = 6  # forks in one figure: the newest


def branches(scene: Scene, metric: str, *, smooth: bool = False) -> list[tuple[str, Curve]]:
    """The parent from the fork on, then the forks, each with its name; only what has points there. With `smooth` the
    level of each, as of the run itself: noisy points over each other could not be told apart."""
    runs = RunRepository(scene.session)
    found: list[tuple[str, Curve]] = []
    parent = runs.by_uuid(scene.run.forked_from) if scene.run.forked_from else None
    if parent is not None:
        found.append((f"{parent.name} (forked from)", _curve(scene, parent.id, metric, scene.run.forked_at_step)))
    found += [
        (f"{fork.name} (fork)", _curve(scene, fork.id, metric, fork.forked_at_step))
        for fork in runs.forks(scene.run.uuid)[-MOST:]
    ]
    return [(name, (local_level(curve) if smooth else None) or curve) for name, curve in found if len(curve)]


def superseded(scene: Scene, metric: str) -> Curve:
    """The points that later starts of the run have replaced."""
    first, last = scene.steps if scene.steps is not None else (None, None)
    read = scene.series.read(scene.run.id, [metric], from_step=first, to_step=last, superseded=True).get(metric)
    if read is None:
        return Curve.of([], [])
    old = ~read.live
    x = scene.ruler.of(read.steps[old], read.tokens[old])
    k = np.isfinite(x)
    order = np.argsort(x[k], kind="stable")
    return Curve.of(x[k][order], read.values[old][k][order])


def _curve(scene: Scene, run_id: int, metric: str, from_step: int | None) -> Curve:
    first, last = scene.steps if scene.steps is not None else (0, None)
    overview = scene.series.overview(
        run_id, metric, points=1000, from_step=max(first, (from_step or 0) + 1), to_step=last
    )
    if overview is None or not len(overview):
        return Curve.of([], [])
    x = scene.ruler.of_reference(overview.steps, overview.tokens)
    k = np.isfinite(x)
    return Curve(
        x[k], overview.mean[k], overview.minimum[k], overview.maximum[k], np.asarray(overview.non_finite[k] > 0)
    )
