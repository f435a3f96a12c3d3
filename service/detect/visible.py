"""What the drift charts can find beside a reference, window by window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compare.align import Level
from service.compare.noise import default_window
from service.compare.visible import BlockErrors, Chart, Visible, block_errors, smallest_gaps

from .bank import SCALE_POINTS
from .cache import LevelCache
from .gaps import ALARM, EARLY_SHARE, MOST, OFFSET_SHARE, SD_PER_TOLERANCE, TrainGap, healthy_sd, sd_of_move
from .inputs import Floats, RunView, Series, Tolerance
from .offset import settled_offsets

WINDOWS = 50
MOST_STEPS = 50_000_000  # beyond that the run's tokens per step do not fit the reference


@dataclass(frozen=True, slots=True)
class VisibleHere:
    """The window of the reference that the run is in (`start` … `end`, shares of its tokens): the gap through it that
    is found in `half` of all runs and in 95 % (`sure`), the reference's `points`; `along`: the same by tenth."""

    half: float
    sure: float
    start: float
    end: float
    points: int
    along: str


def visible_here(view: RunView, train: TrainGap | None, metric: str, cache: LevelCache) -> VisibleHere | None:
    """What shows where the run is now. Worked out once per reference and tolerance."""
    if train is None or len(train.blocks) == 0:
        return None
    base, first = cache.get(metric, view.reference[metric]), view.metrics[metric].first(SCALE_POINTS)
    return cache.unchanged(
        ("visible", metric, bool(view.deviations)), (train, base, first),
        lambda: _here(train, metric, base, first, cache),
    )  # fmt: skip


def _here(train: TrainGap, metric: str, base: Level, first: Series, cache: LevelCache) -> VisibleHere | None:
    per_step = float(np.median(np.diff(first.tokens) / np.diff(first.steps))) if len(first) > 1 else 0.0
    if not per_step > 0.0:
        return None
    found = cache.once((metric, base, train.tolerance, per_step), lambda: visible_gaps(base, train.tolerance, per_step))
    if found is None:
        return None
    place = (train.blocks.last_tokens[-1] - base.points[0]) / (base.points[-1] - base.points[0])
    i = found.at(float(place))
    tenths = [float(np.median(found.half[j : j + WINDOWS // 10])) for j in range(0, WINDOWS, WINDOWS // 10)]
    along = ", ".join(f"{10 * k}–{10 * k + 10} %: {gap:.3f}" for k, gap in enumerate(tenths))
    return VisibleHere(float(found.half[i]), float(found.sure[i]), float(found.start[i]), float(found.end[i]),
                       int(found.points[i]), along)  # fmt: skip


def visible_gaps(
    reference: Level, tolerance: Tolerance, tokens_per_step: float, windows: int = WINDOWS
) -> Visible | None:
    """The smallest drifts that can be seen; None where the reference is shorter than four blocks per window, or
    the run's steps are not of its scale."""
    noise = tolerance.noise_sd or reference.noise_sd
    length = int((reference.points[-1] - reference.points[0]) / tokens_per_step) if len(reference.points) else 0
    window = tolerance.window_steps or default_window(noise, tolerance.value, length)
    if not 4 * windows * window <= length <= MOST_STEPS:
        return None
    errors = block_errors(reference, tokens_per_step, window, noise)
    return smallest_gaps(errors, _chart(errors, reference, tolerance), tolerance.value / SD_PER_TOLERANCE, reference,
                         windows)  # fmt: skip


def _chart(errors: BlockErrors, reference: Level, tolerance: Tolerance) -> Chart:
    """The chart that finds a drift first: against the run's own offset once that is known, before against zero."""
    span = reference.points[-1] - reference.points[0]
    place: Floats = (errors.last_tokens - reference.points[0]) / span
    sd = healthy_sd(errors.se, tolerance) * (1.0 + 2.0 * np.clip(1.0 - place / EARLY_SHARE, 0.0, 1.0))
    room = 0.0 if tolerance.runs else OFFSET_SHARE * tolerance.value
    limit, unit = SD_PER_TOLERANCE * sd + room, sd
    offsets = settled_offsets(np.zeros(len(place)), place, sd)
    moved = np.nan_to_num(sd_of_move(errors.se, sd, offsets, tolerance))
    known = ~np.isnan(offsets.value) & (SD_PER_TOLERANCE * moved < limit)
    return Chart(np.where(known, SD_PER_TOLERANCE * moved, limit), np.where(known, moved, unit), ALARM, MOST)
