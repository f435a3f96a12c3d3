"""Noise and tolerance of a reference's losses, from its own curve and from its healthy reruns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from service.compare.align import align
from service.compare.noise import sibling_tolerance, step_noise
from service.detect.gaps import LevelCache, tolerance_of
from service.detect.inputs import Floats, Ints, RunView, Series
from service.references.description import Heldout, ToleranceEntry

TRAIN = "train/ce_loss"
# AI2's OLMo 3 7B: an independent reproduction's C4 loss stayed within 0.005 nats, one evaluation has sd 0.002.
EVALUATION_TOLERANCE = 0.005
TOLERANCE_PER_EVALUATION_NOISE = 2.5


def judged(metric: str) -> bool:
    """Whether rules look at it: the train loss and held-out losses."""
    return metric == TRAIN or (metric.startswith("heldout/") and metric.endswith("/ce_loss"))


def live(parts: Sequence[tuple[Ints, Floats]]) -> tuple[Ints, Floats]:
    """One series from those of several launches, the earliest first: at each step the later launch wins."""
    steps = np.concatenate([steps for steps, _ in parts])
    values = np.concatenate([values for _, values in parts])
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    last = np.append(steps[1:] != steps[:-1], True)
    return steps[last], values[last]


def estimate(
    reference: Mapping[str, Series], siblings: Sequence[Mapping[str, Series]] = ()
) -> dict[str, ToleranceEntry]:
    """Tolerance of each loss of one stage; `siblings` are healthy reruns of that stage, on the same token axis."""
    found: dict[str, ToleranceEntry] = {}
    for metric, series in reference.items():
        if metric == TRAIN and len(series):
            view = RunView({}, reference, {}, (), siblings=siblings)
            train = tolerance_of(view, metric, LevelCache())
            found[metric] = _entry(train.value, train.source, train.runs, train.noise_sd, train.window_steps)
        elif judged(metric) and len(series):
            found[metric] = _evaluation(metric, series, [own for own in siblings if metric in own])
    return found


def heldout_sets(metrics: Iterable[str]) -> list[dict[str, Any]]:
    """Held-out sets of a reference that nobody described: the first one counts first."""
    found = [metric for metric in dict.fromkeys(metrics) if metric.startswith("heldout/")]
    return [
        Heldout(name=metric.split("/")[1], metric=metric, id=metric.split("/")[1], primary=place == 0).model_dump()
        for place, metric in enumerate(found)
    ]


def _evaluation(metric: str, series: Series, siblings: Sequence[Mapping[str, Series]]) -> ToleranceEntry:
    noise = step_noise(series.values[len(series) // 10 :])
    base = LevelCache().get(metric, series)
    gaps = [align(sibling[metric], base).gap for sibling in siblings]
    if any(np.isfinite(gap).any() for gap in gaps):
        wander = sibling_tolerance(gaps, 1, noise)
        return _entry(wander.value, wander.source, wander.runs, noise, None)
    value = max(EVALUATION_TOLERANCE, TOLERANCE_PER_EVALUATION_NOISE * (noise or 0.0))
    source = "assumed, as at 7B scale; no sibling runs measured"
    if noise:
        source += f"; the noise is that of the reference's own {len(series):,} evaluations"
    return _entry(value, source, 0, noise, None)


def _entry(value: float, source: str, runs: int, noise: float | None, window: int | None) -> ToleranceEntry:
    return ToleranceEntry(
        value=value, unit="nats", source=source, runs=runs, noise_sd=noise or None, window_steps=window
    )
