"""The gap of one metric of a run to its reference, for charts: block means with intervals, or single evaluations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from service.compare.align import Aligned, kind_of
from service.compare.bank import Normality, normality, phase_of
from service.compare.gap import block_gaps
from service.compare.noise import default_window, step_noise
from service.database.models import Run
from service.detect.bank import scale_of
from service.detect.gaps import LevelCache, aligned, tolerance_of
from service.detect.inputs import RunView, Series, Tolerance
from service.detect.normality import EVALUATIONS
from service.detect.recipe import flat
from service.detect.settings import with_tolerances
from service.judgements.view import ReferenceView, reference_view
from service.references.describe import description
from service.references.repository import ReferenceRepository
from service.rules.effective import settings_of
from service.rules.reading import settings_in_force
from service.series.repository import SeriesRepository

Z95 = 1.96

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gap:
    """Run minus reference at equal tokens. Arrays (m,), ascending: first and last step and token of what each value is
    the mean of, its 95 % interval (NaN where its noise is not known), and of how many points of the run.

    `window_steps` is the width of a block, None where each evaluation stands for itself. `tolerance` is the one in
    force, None where none is known for this metric; `normality` sets the newest gap (the median of the newest three
    evaluations) beside healthy pairs, None where there is no gap yet.
    """

    first_step: Ints
    last_step: Ints
    first_tokens: Floats
    last_tokens: Floats
    gap: Floats
    low: Floats
    high: Floats
    n: Ints
    window_steps: int | None
    tolerance: Tolerance | None
    normality: Normality | None = None


def read_gap(session: Session, run: Run, metric: str, points: int) -> tuple[Gap, ReferenceView]:
    """The gap in at most `points` blocks of equal width, the narrowest that the tolerance was made for or wider.

    Raises:
        UnknownReferenceError: the run names no reference, or none that is installed.
    """
    reference = reference_view(session, run)
    series = reference.metrics.get(metric) or _reference_series(session, run, metric)
    read = SeriesRepository(session).read(run.id, [metric]).get(metric)
    metrics = {metric: Series(read.steps, read.tokens, read.values)} if read else {}
    view = RunView(
        metrics=metrics,
        reference={metric: series} if series else {},
        tolerances=reference.tolerances,
        segments=(),
        siblings=reference.siblings,
        settings=settings_of(settings_in_force(session, run)),
        heldout=reference.heldout,
    )
    cache = reference.levels if metric in reference.metrics else LevelCache()
    view = with_tolerances(view, cache)
    placed = aligned(view, metric, cache)
    if placed is None:
        return _nothing(), reference
    if kind_of(metric) == "evaluation":
        found = _evaluations(placed, view.tolerances.get(metric))
    else:
        found = _blocks(placed, tolerance_of(view, metric, cache), points)
    return replace(found, normality=_normality(session, run, view, found, metric)), reference


def _normality(session: Session, run: Run, view: RunView, gap: Gap, metric: str) -> Normality | None:
    if len(gap.gap) == 0:
        return None
    reference = ReferenceRepository(session).current(run.reference or "")
    entries = flat(description(reference).recipe) if reference else {}
    scale = scale_of(run.reference or "", entries, view.metrics[metric])
    points = view.reference[metric].tokens
    place = (float(gap.last_tokens[-1]) - float(points[0])) / max(float(points[-1] - points[0]), 1e-9)
    newest = gap.gap[-1:] if gap.window_steps else gap.gap[-EVALUATIONS:]
    value = float(np.nanmedian(newest)) if np.isfinite(newest).any() else float("nan")
    return normality(value, metric, scale, "unknown", phase_of(place), gap.window_steps or 1)


def _blocks(placed: Aligned, tolerance: Tolerance, points: int) -> Gap:
    narrowest = tolerance.window_steps or default_window(tolerance.noise_sd, tolerance.value)
    span = int(placed.steps[-1]) - int(placed.steps[0]) + 1
    window = narrowest * max(1, -(-span // (narrowest * points)))
    blocks = block_gaps(placed, window)
    half = Z95 * blocks.se
    return Gap(
        blocks.first_step,
        blocks.last_step,
        blocks.first_tokens,
        blocks.last_tokens,
        blocks.mean,
        blocks.mean - half,
        blocks.mean + half,
        blocks.n,
        window,
        tolerance,
    )


def _evaluations(placed: Aligned, tolerance: Tolerance | None) -> Gap:
    gap = placed.gap
    noise = step_noise(gap)
    if tolerance is not None and tolerance.noise_sd:
        noise = max(noise or 0.0, tolerance.noise_sd)
    half = np.full(len(gap), np.nan if noise is None else Z95 * noise)
    once = np.ones(len(gap), np.int64)
    return Gap(
        placed.steps,
        placed.steps,
        placed.tokens,
        placed.tokens,
        gap,
        gap - half,
        gap + half,
        once,
        None,
        tolerance,
    )


def _nothing() -> Gap:
    steps, values = np.zeros(0, np.int64), np.zeros(0)
    return Gap(steps, steps, values, values, values, values, values, steps, None, None)


def _reference_series(session: Session, run: Run, metric: str) -> Series | None:
    references = ReferenceRepository(session)
    reference = references.current(run.reference or "")
    curve = references.run_of(reference.id, run.stage) if reference else None
    read = SeriesRepository(session).read(curve.id, [metric]).get(metric) if curve else None
    return Series(read.steps, read.tokens, read.values) if read else None
