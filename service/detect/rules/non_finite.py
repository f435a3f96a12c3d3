"""Rule `non_finite`: is the train loss or a held-out loss NaN or infinite now?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.detect.findings import TRAIN, Findings
from service.detect.gaps import heldout_metrics
from service.detect.inputs import Series
from service.detect.judgement import Evidence, Judgement

RULE = "non_finite"
RECENT_POINTS = 100  # a train loss that has been finite for this many points has recovered
RECENT_EVALUATIONS = 1


def judge(findings: Findings) -> Judgement:
    """`yes` while one of the newest 100 points of the train loss, or the newest held-out loss, is not finite."""
    view = findings.view
    evidence: list[Evidence] = []
    hits: list[_Hit] = []
    n = 0
    for metric, recent in [(TRAIN, RECENT_POINTS), *((m, RECENT_EVALUATIONS) for m in heldout_metrics(view))]:
        series = view.metrics.get(metric)
        if series is None or len(series) == 0:
            continue
        n += len(series)
        bad = findings.cache.non_finite(series, metric)
        if len(bad):
            why = f"the first at step {int(series.steps[bad[0]]):,}, the newest at step {int(series.steps[bad[-1]]):,}"
            evidence.append(Evidence(f"non-finite values of {metric}", len(bad), "points", why))
        if len(bad) and bad[-1] >= len(series) - recent:
            hits.append(_hit(series, metric, bad, min((s.start_step for s in view.segments), default=0) + 1))
    losses = {TRAIN, *heldout_metrics(view)}
    for metric, series in view.metrics.items():
        if metric in losses:
            continue
        bad = len(findings.cache.non_finite(series, metric))
        if bad:
            evidence.append(Evidence(f"non-finite values of {metric}", bad, "points", "seen, but not a loss"))
    if not hits:
        state = "no" if n else "cannot tell"
        summary = "All recent losses are finite." if n else "Cannot tell: the run has no loss."
        return Judgement(RULE, state, findings.at_step, summary, n=n, evidence=evidence)
    first = min(hits, key=lambda hit: (hit.steps[1], hit.metric))
    return Judgement(
        RULE, "yes", findings.at_step, f"{first.metric} is not a finite number since step {first.steps[1]:,}.",
        first.steps, first.tokens, float(first.count), None, "points", 0.0, "a loss is a finite number", n, evidence,
        next_checks=[
            "Look at gradient norm and learning rate in the steps before.",
            "Restart from the last checkpoint before that step; skip or inspect the batch that was read there.",
        ],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Hit:
    """A loss that is not finite now: the first update that may be wrong lies within `steps`; `count` of its points."""

    metric: str
    steps: tuple[int, int]
    tokens: tuple[float, float]
    count: int


def _hit(series: Series, metric: str, bad: np.ndarray[tuple[int], np.dtype[np.int64]], first_update: int) -> _Hit:
    """A finite loss is one of the weights before its update: that update may have spoiled them, or a later one that was
    not logged. Where no finite point is known, it may have been any update of the run."""
    start = _run_start(series, bad)
    before = max(start - 1, 0)
    steps, tokens = series.steps[[before, start]].tolist(), series.tokens[[before, start]].tolist()
    low = steps[0] if start else min(first_update, steps[0])
    return _Hit(metric, (low, steps[1]), (tokens[0], tokens[1]), len(bad))


def _run_start(series: Series, bad: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """Index of the first bad value of the newest stretch (bad values fewer than 100 points apart belong together)."""
    breaks = np.flatnonzero(np.diff(bad) > RECENT_POINTS)
    return int(bad[breaks[-1] + 1] if len(breaks) else bad[0])
