"""How the training itself goes: learning rate, gradient norm, speed."""

from __future__ import annotations

import numpy as np

from service.hardware.throughput import RATE as SPEED
from service.references.schedule import learning_rate
from web.content.panels import Group, Panel, newest
from web.content.scene import Scene
from web.figures.curve import MAX_POINTS, Curve
from web.figures.loss import loss_figure

RATE = "optim/learning_rate"
TITLES = {
    RATE: ("Learning rate", ""),
    "optim/grad_norm": ("Gradient norm", ""),
    SPEED: ("Tokens per second and device", "tokens/s"),
    "throughput/step_seconds": ("Time of a step", "s"),
}
PREFIXES = ("optim/", "throughput/")
MOST = 8  # figures
POWERS = {"tickformat": ".1e", "hoverformat": ".4~e", "exponentformat": "e"}


def training(scene: Scene) -> Group:
    """Everything logged as optim/… or throughput/…, the usual ones first."""
    logged = [name for name in scene.series.names(scene.run.id) if name.startswith(PREFIXES)]
    usual = list(TITLES)
    names = sorted(logged, key=lambda name: (usual.index(name) if name in usual else len(usual), name))[:MOST]
    panels = [panel for name in names if (panel := _panel(scene, name)) is not None]
    if not panels:
        return Group(note=f"No {RATE} or throughput/tokens_per_second_per_device yet: log them with the loss.")
    return Group(panels)


def _panel(scene: Scene, metric: str) -> Panel | None:
    run = scene.curve(scene.overview(scene.run.id, metric))
    if not len(run):
        return None
    title, unit = TITLES.get(metric, (metric, ""))
    reference = _reference(scene, metric)
    figure = loss_figure(
        run,
        reference,
        palette=scene.palette,
        axis=scene.axis,
        marks=(),
        x_range=scene.x_range,
        y_title=unit,
        log=scene.choices.log,
    )
    if metric == RATE:
        figure["layout"]["yaxis"] |= POWERS
    return Panel(
        metric, title, newest(run, reference, unit, 6 if metric == RATE else 3, window=scene.choices.window), figure
    )


def _reference(scene: Scene, metric: str) -> Curve | None:
    """The reference's own curve; of the learning rate, where none was logged, its schedule."""
    beside = scene.reference_run
    curve = scene.curve(scene.overview(beside.id, metric), reference=True) if beside is not None else Curve.of([], [])
    if len(curve):
        return _near(scene, curve)
    if metric != RATE or scene.content is None:
        return None
    stage = scene.content.stage(scene.run.stage)
    if stage is None:
        return None
    steps = np.unique(np.linspace(0, stage.steps, MAX_POINTS // 2).round()).astype(np.int64)
    rates = learning_rate(scene.content.schedule, stage.name, steps.astype(np.float64))
    if rates is None:
        return None
    tokens = steps.astype(np.float64) * stage.tokens_per_step + stage.token_offset
    return _near(scene, Curve.of(scene.ruler.of_reference(steps, tokens), rates))


def _near(scene: Scene, curve: Curve) -> Curve | None:
    """What of a reference's curve lies beside the run: else its far end would set the scale."""
    if scene.x_range is None:
        return curve
    near = curve.between(*scene.x_range)
    return near if len(near) > 1 else None
