"""A run beside its reference, metric by metric, with the tolerances and the noise that the rules go by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from service.compare.gap import stride_of, widened
from service.compare.noise import default_window
from service.database.models import Run
from service.detect import gaps
from service.detect.findings import Findings
from service.detect.heldout import evaluation_noise
from service.detect.heldout_gap import EARLY_FACTOR, EARLY_SHARE, heldout_tolerance
from service.detect.inputs import RunView, Series, Tolerance
from service.detect.rules import downstream
from service.detect.sets import on_one_set
from service.detect.settings import with_tolerances
from service.judgements.beside import read_beside
from service.judgements.view import ReferenceView
from service.references.description import Description
from service.reports.document import Cell, Row
from service.reports.standing import Z95, cell
from service.rules.effective import settings_of
from service.rules.reading import settings_in_force
from service.series.repository import SeriesRepository

TRAIN = "train/ce_loss"
SETS = 24  # held-out losses in the table
TASKS = 64  # accuracies in it

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Compared:
    """One metric at each step it can be shown at, (n,) ascending: `values`, and the reference and the deviation where
    they are known (else NaN), with the half width of the 95 % interval. `window` steps are behind each value, None for
    evaluations; `first` is where each of these begins."""

    metric: str
    title: str
    unit: str
    first: Ints
    steps: Ints
    tokens: Floats
    values: Floats
    reference: Floats
    deviation: Floats
    half: Floats
    tolerance: Tolerance | None
    window: int | None = None

    def row(self, steps: Sequence[int]) -> Row:
        """What the table says of it at these checkpoints."""
        return Row(
            metric=self.metric, title=self.title, unit=self.unit,
            tolerance=None if self.tolerance is None else self.tolerance.value,
            tolerance_source="" if self.tolerance is None else self.tolerance.source,
            tolerance_runs=0 if self.tolerance is None else self.tolerance.runs,
            gap_steps=self.window, cells=[self.at(step) for step in steps],
        )  # fmt: skip

    def at(self, step: int) -> Cell | None:
        """The metric at one checkpoint: the evaluation there, or the block that it lies in; where that is not complete
        yet, the one before."""
        i = int(np.searchsorted(self.first, step, side="right")) - 1
        if i < 0 or step > self.steps[i] + (self.window or 0):
            return None
        limit = None if self.tolerance is None else self.tolerance.value
        return cell(
            float(self.values[i]), _known(self.reference[i]), _known(self.deviation[i]), _known(self.half[i]), limit
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything of a run that is compared: train loss in blocks, held-out losses (the one that counts first in
    front), the mean of the accuracies, then each task."""

    train: Compared | None
    heldout: list[Compared]
    mean: Compared | None
    tasks: list[Compared]
    left_out: list[str] = field(default_factory=list[str])

    @property
    def all(self) -> list[Compared]:
        """In the order of the table."""
        ends = [self.train] if self.train is not None else []
        mean = [self.mean] if self.mean is not None else []
        return [*ends, *self.heldout, *mean, *self.tasks]

    def evaluations(self) -> tuple[Ints, Floats]:
        """The steps at which most was measured at once, and their tokens: where a checkpoint can be told of."""
        found = [*self.heldout, *([self.mean] if self.mean else []), *self.tasks]
        if not found and self.train is not None:
            return self.train.steps, self.train.tokens
        if not found:
            return np.empty(0, np.int64), np.empty(0)
        steps, counts = np.unique(np.concatenate([one.steps for one in found]), return_counts=True)
        full = steps[counts >= 0.8 * counts.max()]
        kept = full if len(full) >= 2 else steps
        tokens = np.full(len(kept), np.nan)
        for one in found:
            at = np.minimum(np.searchsorted(one.steps, kept), len(one.steps) - 1)
            here = one.steps[at] == kept
            tokens[here] = one.tokens[at[here]]
        return kept, tokens


def compare(
    session: Session,
    store: SeriesRepository,
    run: Run,
    reference: ReferenceView | None,
    content: Description | None,
    names: Sequence[str],
) -> Comparison:
    """Read the losses and accuracies among `names` and lay them over the reference. Declared deviations are not taken
    out: the table says where a run is, not what was expected."""
    left: list[str] = []
    held = _first(
        [n for n in names if n.startswith("heldout/") and n.endswith("/ce_loss")],
        reference.heldout if reference else "", SETS, "held-out losses", left,
    )  # fmt: skip
    wanted = [task.metric for task in content.tasks] if content else []
    logged = [n for n in names if n.startswith("downstream/") and n.endswith("/accuracy")]
    tasks = [m for m in wanted if m in logged] + [m for m in logged if m not in wanted]
    if len(tasks) > TASKS:
        left.append(f"{len(tasks) - TASKS} more accuracies")
    tasks = tasks[:TASKS]
    read = store.read(run.id, [TRAIN, *held, *tasks])
    metrics = {name: Series(p.steps, p.tokens, p.values) for name, p in read.items() if len(p.steps)}
    beside = read_beside(session, run.id)
    empty: Mapping[str, Series] = {}
    cache = reference.levels if reference else gaps.LevelCache()
    view = RunView(
        metrics=metrics,
        reference=reference.metrics if reference else empty,
        tolerances=reference.tolerances if reference else {},
        segments=(),
        siblings=reference.siblings if reference else (),
        heldout=reference.heldout if reference else "",
        tasks=reference.tasks if reference else {},
        settings=settings_of(settings_in_force(session, run)),
        eval_sets=beside.eval_sets,
        items=beside.items,
        reference_items=reference.items if reference else {},
        recipe=reference.recipe if reference else RunView(empty, empty, {}, ()).recipe,
    )
    view = with_tolerances(on_one_set(view), cache)
    train, found = _train(view, cache)
    titles = {entry.metric: entry.title or entry.name for entry in content.heldout} if content else {}
    losses = [_heldout(view, m, titles.get(m, _set(m)), found, cache) for m in held if m in view.metrics]
    named = {task.metric: task.title or task.key for task in content.tasks} if content else {}
    mean, single = _tasks(view, [m for m in tasks if m in view.metrics], named, cache)
    return Comparison(train, losses, mean, single, left)


def _first(names: list[str], primary: str, most: int, what: str, left: list[str]) -> list[str]:
    ordered = sorted(names, key=lambda name: (name != primary, name))
    if len(ordered) > most:
        left.append(f"{len(ordered) - most} more {what}")
    return ordered[:most]


def _train(view: RunView, cache: gaps.LevelCache) -> tuple[Compared | None, gaps.TrainGap | None]:
    found = gaps.train_gap(view, TRAIN, cache)
    series = view.metrics.get(TRAIN)
    if found is None or series is None or len(found.blocks) == 0:
        return None, found
    blocks = found.blocks
    starts = np.searchsorted(series.steps, blocks.first_step)
    ends = np.searchsorted(series.steps, blocks.last_step, side="right")
    good = np.where(np.isfinite(series.values), series.values, 0.0)
    total = np.concatenate(([0.0], np.cumsum(good)))
    count = np.concatenate(([0], np.cumsum(np.isfinite(series.values))))
    many = np.maximum(count[ends] - count[starts], 1)
    values = np.where(count[ends] > count[starts], (total[ends] - total[starts]) / many, np.nan)
    tolerance = found.tolerance
    window = tolerance.window_steps or default_window(tolerance.noise_sd, tolerance.value, len(view.reference[TRAIN]))
    window = widened(window, stride_of(series.steps[starts[0] :]))
    compared = Compared(
        TRAIN, "Training loss", "nats per token", blocks.first_step, blocks.last_step, blocks.last_tokens, values,
        values - blocks.mean, blocks.mean, Z95 * blocks.se, found.tolerance, window,
    )  # fmt: skip
    return compared, found


def _heldout(view: RunView, metric: str, title: str, train: gaps.TrainGap | None, cache: gaps.LevelCache) -> Compared:
    title = f"Held-out loss: {title}"
    series = view.metrics[metric]
    nothing = np.full(len(series), np.nan)
    placed = gaps.aligned(view, metric, cache)
    if placed is None:
        return Compared(metric, title, "nats per token", series.steps, series.steps, series.tokens, series.values,
                        nothing, nothing, nothing, None)  # fmt: skip
    at = np.searchsorted(series.steps, placed.steps)
    reference, deviation, half = nothing.copy(), nothing.copy(), nothing.copy()
    reference[at], deviation[at] = placed.reference, placed.gap
    step_noise = train.tolerance.noise_sd if train is not None else None
    noise = evaluation_noise(view, metric, step_noise, placed.gap[np.isfinite(placed.gap)], cache)
    points = cache.get(metric, view.reference[metric]).points
    place = (placed.tokens - points[0]) / max(float(points[-1] - points[0]), 1e-9)
    half[at] = Z95 * noise * (1.0 + (EARLY_FACTOR - 1.0) * np.clip(1.0 - place / EARLY_SHARE, 0.0, 1.0))
    tolerance = heldout_tolerance(view, metric, train, cache)
    return Compared(metric, title, "nats per token", series.steps, series.steps, series.tokens, series.values,
                    reference, deviation, half, tolerance)  # fmt: skip


def _tasks(
    view: RunView, metrics: list[str], titles: Mapping[str, str], cache: gaps.LevelCache
) -> tuple[Compared | None, list[Compared]]:
    """The mean over the tasks that both have, where all of them were evaluated at once, and each task."""
    if not metrics:
        return None, []
    keys = {m: m.removeprefix("downstream/").removesuffix("/accuracy") for m in metrics}
    shared = [keys[m] for m in metrics if keys[m] in view.tasks and len(view.reference.get(m, ()))]
    points: list[downstream.Checkpoint] = []
    tolerance: Tolerance | None = None
    if shared:
        points, value, source = downstream.checkpoints(Findings(view, cache), shared)
        declared = view.tolerances.get(downstream.MACRO)
        tolerance = Tolerance(value, source, declared.runs if declared is not None else 0)
    at = {point.step: point for point in points}
    single: list[Compared] = []
    for metric in metrics:
        series = view.metrics[metric]
        deviation, half = np.full(len(series), np.nan), np.full(len(series), np.nan)
        limit: Tolerance | None = None
        if keys[metric] in shared and tolerance is not None:
            j = shared.index(keys[metric])
            for i, step in enumerate(series.steps.tolist()):
                if step in at:
                    deviation[i], half[i] = at[step].difference[j], Z95 * at[step].se[j]
            root = float(np.sqrt(len(shared)))
            limit = replace(
                tolerance, value=tolerance.value * root,
                source=f"that of the mean of {len(shared)} tasks times their root; {tolerance.source}",
            )  # fmt: skip
        single.append(
            Compared(
                metric,
                titles.get(metric, keys[metric]),
                "accuracy",
                series.steps,
                series.steps,
                series.tokens,
                series.values,
                series.values - deviation,
                deviation,
                half,
                limit,
            )
        )
    return _mean(view, shared, points, tolerance), single


def _mean(
    view: RunView, shared: list[str], points: list[downstream.Checkpoint], tolerance: Tolerance | None
) -> Compared | None:
    if not points or tolerance is None:
        return None
    steps = np.array([point.step for point in points], np.int64)
    own = np.zeros(len(steps))
    for task in shared:
        series = view.metrics[f"downstream/{task}/accuracy"]
        own += series.values[np.searchsorted(series.steps, steps)] / len(shared)
    deviation = np.array([point.mean for point in points])
    return Compared(
        downstream.MACRO, f"Mean of {len(shared)} accuracies", "accuracy", steps, steps,
        np.array([point.tokens for point in points]), own, own - deviation, deviation,
        np.array([Z95 * point.mean_se for point in points]), tolerance,
    )  # fmt: skip


def _set(metric: str) -> str:
    return metric.removeprefix("heldout/").removesuffix("/ce_loss")


def _known(value: float) -> float | None:
    """NaN stands for what is not known."""
    return None if np.isnan(value) else float(value)
