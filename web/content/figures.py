"""The groups of figures on a run's page: each answers with panels, or with a note that says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import service.judgements.gap as read
from web import formatting
from web.content.accuracy import accuracy, tasks
from web.content.branches import branches, superseded
from web.content.data import data
from web.content.gaps import gap_change, gap_of
from web.content.panels import Group, Panel, newest
from web.content.ribbon import segments
from web.content.scene import TRAIN, Scene, local_level
from web.content.training import training
from web.figures.curve import MAX_POINTS
from web.figures.gap import Gap, gap_figure
from web.figures.heldout import heldout_figure
from web.figures.loss import loss_figure


def loss(scene: Scene) -> Group:
    """Training loss over the reference's."""
    run = scene.curve(scene.overview(scene.run.id, TRAIN))
    if not len(run):
        return Group(note=f"No training loss yet: log it as {TRAIN}.")
    reference = scene.reference_curve(TRAIN)
    figure = loss_figure(
        run,
        reference,
        palette=scene.palette,
        axis=scene.axis,
        run_means=local_level(run) if scene.choices.smooth else None,
        reference_means=local_level(reference) if reference is not None and scene.choices.smooth else None,
        tolerance=scene.tolerance(TRAIN),
        marks=scene.marks,
        x_range=scene.x_range,
        branches=branches(scene, TRAIN, smooth=scene.choices.smooth),
        superseded=superseded(scene, TRAIN) if scene.choices.superseded else None,
        log=scene.choices.log,
    )
    words = newest(run, reference, "nats", window=scene.choices.window)
    if reference is None:
        words += " No reference curve to lay it over."
    elif scene.tolerance(TRAIN) is not None:
        words += " The band is the reference ± tolerance; faint lines are single points."
    return Group([Panel("loss", "Training loss", words, figure)])


def gap(scene: Scene) -> Group:
    """The gap at equal tokens, training loss in blocks and held-out loss beside it."""
    if scene.view is None:
        return Group(note="No gap without a reference: start the hook with reference=… to compare.")
    train = gap_of(scene.session, scene.run, TRAIN, MAX_POINTS)
    if train.tolerance is None:
        return Group(note=f"No gap yet: it needs the run's {TRAIN} at tokens where the reference has it too.")
    metric = next((name for name in heldout_names(scene) if name in scene.view.metrics), None)
    held = gap_of(scene.session, scene.run, metric, MAX_POINTS) if metric else None
    figure = gap_figure(
        _placed(scene, train),
        palette=scene.palette,
        axis=scene.axis,
        heldout=None if held is None else _placed(scene, held),
        tolerance=train.tolerance.value,
        marks=scene.marks,
        x_range=scene.x_range,
    )
    return Group([Panel("gap", "Gap to the reference at equal tokens", _gap_words(train, held, scene), figure)])


def generalization(scene: Scene) -> Group:
    """Train gap less held-out gap at each evaluation: about nought for a real gain, below it for memorization."""
    if scene.view is None:
        return Group()  # the gap says why
    train = gap_of(scene.session, scene.run, TRAIN, MAX_POINTS)
    metric = next((name for name in heldout_names(scene) if name in scene.view.metrics), None)
    if metric is None or train.tolerance is None or len(train.gap) == 0:
        return Group()
    change = gap_change(train, gap_of(scene.session, scene.run, metric, MAX_POINTS))
    if len(change.gap) == 0:
        return Group()
    figure = gap_figure(
        _placed(scene, change),
        palette=scene.palette,
        axis=scene.axis,
        tolerance=train.tolerance.value,
        marks=scene.marks,
        x_range=scene.x_range,
        train_name="train − held-out",
        y_title="train − held-out, nats",
    )
    ends = [float(change.low[-1]), float(change.high[-1])]
    words = (
        f"At step {formatting.step(int(change.last_step[-1]))}: "
        f"{formatting.estimate(float(change.gap[-1]), ends)} nats. "
        "About 0 where a gain is real, below 0 where the model memorizes."
    )
    return Group([Panel("generalization", "Generalization gap change", words, figure)])


def _placed(scene: Scene, found: read.Gap) -> Gap:
    first = scene.ruler.of(found.first_step, found.first_tokens)
    last = scene.ruler.of(found.last_step, found.last_tokens)
    return Gap((first + last) / 2, found.gap, found.low, found.high)


def _gap_words(train: read.Gap, held: read.Gap | None, scene: Scene) -> str:
    if len(train.gap) == 0:
        return "Waiting for the first complete block of training loss."
    span = formatting.span([int(train.first_step[-1]), int(train.last_step[-1])])
    estimate = formatting.estimate(float(train.gap[-1]), [float(train.low[-1]), float(train.high[-1])])
    words = f"Newest block (steps {span}): train {estimate} nats."
    if held is not None and len(held.gap):
        words += f" Held-out {formatting.signed(float(held.gap[-1]))}."
    if scene.marks:
        words += " Shaded: where it began; solid line: when the alert was raised."
    return words


def heldout_names(scene: Scene) -> list[str]:
    """The run's held-out losses, the one that counts first in front."""
    first = scene.view.heldout if scene.view else ""
    names = [n for n in scene.series.names(scene.run.id) if n.startswith("heldout/") and n.endswith("/ce_loss")]
    return sorted(names, key=lambda name: (name != first, name))


def heldout(scene: Scene) -> Group:
    """Every held-out loss, the one that counts first in front."""
    panels: list[Panel] = []
    for metric in heldout_names(scene):
        run, reference = scene.curve(scene.overview(scene.run.id, metric)), scene.reference_curve(metric)
        figure = heldout_figure(
            run,
            reference,
            palette=scene.palette,
            axis=scene.axis,
            tolerance=scene.tolerance(metric),
            marks=scene.marks,
            x_range=scene.x_range,
            log=scene.choices.log,
        )
        title = f"Held-out loss: {_set_title(scene, metric)}"
        words = newest(run, reference, "nats", window=scene.choices.window)
        panels.append(Panel(metric, title, words, figure))
    if not panels:
        return Group(note="No held-out loss yet: log heldout/<set>/ce_loss at each evaluation.")
    return Group(panels)


def _set_title(scene: Scene, metric: str) -> str:
    for entry in scene.content.heldout if scene.content else ():
        if entry.metric == metric:
            return entry.title or entry.name
    return metric.removeprefix("heldout/").removesuffix("/ce_loss")


GROUPS: Mapping[str, Callable[[Scene], Group]] = {
    "loss": loss,
    "gap": gap,
    "generalization": generalization,
    "segments": segments,
    "heldout": heldout,
    "accuracy": accuracy,
    "tasks": tasks,
    "training": training,
    "data": data,
}
