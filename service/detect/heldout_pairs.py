"""Has the held-out loss followed the train loss, where run and reference read the same batches: pairs date the fall
and measure it, where block means cannot."""

from __future__ import annotations

import numpy as np

from service.compare.gap import Change, change
from service.compare.pairs import BLOCKS, SD_PER_LIMIT

from .cache import LevelCache
from .gaps import TrainGap, aligned, shared_heldout, unexplained
from .heldout import BEFORE, MIN_EVALUATIONS, HeldoutFinding, evaluation_noise, ratio
from .inputs import RunView
from .pair_drift import PairedDrift


def find(view: RunView, train: TrainGap | None, paired: PairedDrift | None, cache: LevelCache) -> HeldoutFinding | None:
    """Judge held-out against the fall of the open episode of pairs; None where pairs show no fall, or fewer than three
    evaluations are on either side of it.

    An offset of the run can open a drift of block means long before the fall, and a wide tolerance none at all. Train
    and held-out are compared over the same spans."""
    metric, episode = shared_heldout(view), paired.open if paired is not None else None
    if train is None or paired is None or metric is None or episode is None or episode.side != "below":
        return None
    placed = aligned(view, metric, cache)
    if placed is None:
        return None
    steps, first = paired.steps, episode.first
    start, end = int(steps[max(first - BLOCKS, 0)]), int(steps[first])
    shared_from = 2 * int(steps[0]) - int(steps[min(BLOCKS, len(steps) - 1)])  # the first level is of 100 pairs
    finite = np.isfinite(placed.gap)
    at, gap = placed.steps[finite], unexplained(view, metric, placed)[finite]
    quiet = np.flatnonzero((at >= shared_from) & (at <= start))[-BEFORE:]
    after = gap[at >= end]
    if len(quiet) < MIN_EVALUATIONS or len(after) < MIN_EVALUATIONS:
        return None
    moved = change(gap[quiet], after, evaluation_noise(view, metric, train.tolerance.noise_sd, gap, cache))
    settled = (steps >= at[quiet[0]]) & (steps <= start)
    since = np.arange(len(steps)) >= first
    depth = float(np.median(paired.level[since]) - np.median(paired.level[settled]))
    if not depth < 0.0:
        return None
    healthy = float(paired.limit[first]) / SD_PER_LIMIT
    sunk = Change(depth, healthy, int(settled.sum()), int(since.sum()))
    answer, why = ratio(moved, sunk)
    why = f"by pairs of equal batches, {why}"
    return HeldoutFinding(answer, why, metric, sunk, moved, onset=(start, end), n=moved.after)
