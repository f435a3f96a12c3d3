"""Rule `non_finite`: is the train loss or a held-out loss NaN or infinite now?"""

from __future__ import annotations

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
    hits: list[tuple[int, float, str, int]] = []
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
            start = _run_start(series, bad)
            hits.append((int(series.steps[start]), float(series.tokens[start]), metric, len(bad)))
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
    step, tokens, metric, count = min(hits)
    return Judgement(
        RULE, "yes", findings.at_step, f"{metric} is not a finite number since step {step:,}.", (step, step),
        (tokens, tokens), float(count), None, "points", 0.0, "a loss is a finite number", n, evidence,
        next_checks=[
            "Look at gradient norm and learning rate in the steps before.",
            "Restart from the last checkpoint before that step; skip or inspect the batch that was read there.",
        ],
    )  # fmt: skip


def _run_start(series: Series, bad: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """Index of the first bad value of the newest stretch (bad values fewer than 100 points apart belong together)."""
    breaks = np.flatnonzero(np.diff(bad) > RECENT_POINTS)
    return int(bad[breaks[-1] + 1] if len(breaks) else bad[0])
