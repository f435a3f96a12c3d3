"""The held-out gap to the reference, evaluation by evaluation, with the noise and the tolerance of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compare.gap import Change, change
from service.compare.medians import median
from service.compare.noise import sibling_tolerance

from . import heldout
from .bank import heldout_by_bank
from .gaps import SD_PER_TOLERANCE, LevelCache, TrainGap, aligned, shared_heldout, unexplained
from .inputs import Floats, Ints, RunView, Tolerance

ASSUMED = 0.005  # nats, at 7B scale; elsewhere it keeps AI2's proportion to the train tolerance
SHARE_OF_TRAIN = 1.0 / 3.0
EARLY_SHARE = 0.10  # of the reference's tokens: there evaluations scatter up to three times as far
EARLY_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class HeldoutGap:
    """Finite evaluations inside the reference's range, ascending. Arrays (n,): `steps`, `tokens`, `gap` (run minus
    reference), `noise` (sd of one such gap), `sd` (of a healthy run's gap: noise and wander)."""

    metric: str
    steps: Ints
    tokens: Floats
    gap: Floats
    noise: Floats
    sd: Floats
    tolerance: Tolerance

    def __len__(self) -> int:
        return len(self.gap)


def heldout_gap(view: RunView, train: TrainGap | None, cache: LevelCache) -> HeldoutGap | None:
    """The gap of the held-out loss that counts first among those that run and reference share; None without one.
    The same object again until there is another evaluation, or another of anything else that it rests on."""
    metric = shared_heldout(view)
    if metric is None:
        return None
    parts = (
        metric, view.metrics[metric], None if train is None else train.tolerance, view.reference, view.siblings,
        view.tolerances, view.deviations, view.reference_name, view.recipe,
    )  # fmt: skip
    name = ("held-out gap", bool(view.deviations))
    return cache.unchanged(name, parts, lambda: _measured(view, metric, train, cache))


def _measured(view: RunView, metric: str, train: TrainGap | None, cache: LevelCache) -> HeldoutGap | None:
    placed = aligned(view, metric, cache)
    if placed is None:
        return None
    finite = np.isfinite(placed.gap)
    tokens, gap = placed.tokens[finite], unexplained(view, metric, placed)[finite]
    if len(gap) == 0:
        return None
    points = cache.get(metric, view.reference[metric]).points
    place = (tokens - points[0]) / max(float(points[-1] - points[0]), 1e-9)
    early = 1.0 + (EARLY_FACTOR - 1.0) * np.clip(1.0 - place / EARLY_SHARE, 0.0, 1.0)
    tolerance = heldout_tolerance(view, metric, train, cache)
    step_noise = train.tolerance.noise_sd if train is not None else None
    noise = heldout.evaluation_noise(view, metric, step_noise, gap, cache) * early
    wander = tolerance.value / SD_PER_TOLERANCE * early
    sd = np.maximum(noise, wander) if tolerance.runs else np.hypot(noise, wander)
    return HeldoutGap(metric, placed.steps[finite], tokens, gap, noise, sd, tolerance)


def heldout_tolerance(view: RunView, metric: str, train: TrainGap | None, cache: LevelCache) -> Tolerance:
    """How far a healthy run's held-out gap may lie: declared, measured on siblings, on the bank's healthy pairs
    of its scale, or a third of the train's."""
    declared = view.tolerances.get(metric)
    if declared is not None and np.isfinite(declared.value) and declared.value > 0.0:
        return declared
    gaps: list[Floats] = []
    for sibling in view.siblings:
        if metric in sibling:
            placed = aligned(RunView({metric: sibling[metric]}, view.reference, {}, ()), metric, cache)
            if placed is not None:
                points = placed.points
                late = placed.tokens > points[0] + EARLY_SHARE * (points[-1] - points[0])
                gaps.append(placed.gap[late])
    if any(np.isfinite(g).any() for g in gaps):
        measured = sibling_tolerance(gaps, 1, None)
        source = measured.source.replace("the 1-step mean gaps", "the held-out gaps")
        return Tolerance(measured.value, source, measured.runs)
    banked = heldout_by_bank(view, metric)
    if banked is not None:
        return banked
    value = ASSUMED if train is None else max(ASSUMED, SHARE_OF_TRAIN * train.tolerance.value)
    return Tolerance(value, "assumed, no sibling at this scale: a third of the train loss's tolerance, as at 7B")


def train_change(train: TrainGap, before_step: int, after_step: int, reach: int) -> Change | None:
    """Change of the train gap from the newest `reach` blocks that end by `before_step` to the first `reach` ones that
    start after `after_step`; None where there are none."""
    blocks = train.blocks
    before = np.flatnonzero(blocks.last_step <= before_step)[-reach:]
    after = np.flatnonzero(blocks.first_step > after_step)[:reach]
    if len(before) == 0 or len(after) == 0:
        return None
    noise = median(np.maximum(blocks.se, train.sd)[np.concatenate((before, after))])
    return change(blocks.mean[before], blocks.mean[after], noise)
