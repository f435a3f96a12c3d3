"""Rule `throughput_changed`: do devices work faster or slower since the newest trainer start?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from service.detect.findings import Findings
from service.detect.inputs import Series
from service.detect.judgement import Evidence, Judgement, State

RULE = "throughput_changed"
RATE = "throughput/tokens_per_second_per_device"
LIMIT = 0.01  # relative
WARM = 10  # points after a start that are left out: compilation, first reads
MOST = 1_000  # points of a segment that are looked at, those nearest to the newest start
PARTS = 10  # of a segment; the spread of their medians tells how far slow changes go
MIN_POINTS = 100
SURE = 3.0


@dataclass(frozen=True, slots=True)
class Typical:
    """Median rate of a segment with its standard error, from `n` points."""

    rate: float
    se: float
    n: int


def judge(findings: Findings) -> Judgement:
    """`yes` when the medians of the newest segment and the one before it differ by surely more than 1 %."""
    series, view = findings.view.metrics.get(RATE), findings.view
    starts = sorted({s.start_step for s in view.segments})
    if series is None or len(series) == 0:
        return Judgement(RULE, "cannot tell", findings.at_step, "Cannot tell: the run sends no throughput per device.")
    if len(starts) < 2:
        return Judgement(RULE, "cannot tell", findings.at_step, "Cannot tell: there was no restart to compare across.")
    edges = [0, *(int(np.searchsorted(series.steps, s, side="right")) for s in starts[1:]), len(series)]
    spans = [(a, b) for a, b in pairwise(edges) if b - a >= MIN_POINTS + WARM]
    if len(spans) < 2 or spans[-1][1] != len(series):
        summary = f"Cannot tell yet: fewer than {MIN_POINTS} points since the newest start, or before it."
        return Judgement(RULE, "cannot tell", findings.at_step, summary)
    (a, b), (c, d) = spans[-2], spans[-1]
    before = _kept(findings, "before", series, max(a + WARM, b - MOST), b)
    after = _kept(findings, "after", series, c + WARM, min(d, c + WARM + MOST))
    if before is None or after is None:
        return Judgement(RULE, "cannot tell", findings.at_step, "Cannot tell: too few finite, positive rates.")
    ratio = after.rate / before.rate
    se = ratio * float(np.hypot(after.se / after.rate, before.se / before.rate))
    value, half = ratio - 1.0, SURE * se
    restart = starts[-1]
    evidence = [
        Evidence("throughput before", before.rate, "tokens/s/device", f"median of {before.n:,} points"),
        Evidence("throughput since", after.rate, "tokens/s/device", f"median of {after.n:,} points"),
    ]
    limit, source = view.limit(RULE, LIMIT, "1 % per device")
    state: State = "cannot tell"
    word = "changed by"
    if abs(value) - half > limit:
        state, word = "yes", "rose by" if value > 0 else "fell by"
    elif abs(value) + half < limit:
        state, word = "no", "is the same within"
    shown = f"{abs(value):.1%}" if state != "no" else f"{100 * limit:.3g} %"
    summary = f"Throughput per device {word} {shown} at the restart at step {restart:,} (± {half:.1%})."
    if state == "cannot tell":
        summary = f"Cannot tell: {summary[:1].lower()}{summary[1:]}"
    onset = (restart, restart + 1) if state == "yes" else None
    at = (findings.tokens_at(restart), findings.tokens_at(restart + 1)) if state == "yes" else None
    checks = [
        "Compare topology, compiler flags and versions of the two starts.",
        "Look at data loading and checkpoint time per step.",
    ]
    return Judgement(
        RULE, state, findings.at_step, summary, onset, at, value, (value - half, value + half), "share", limit,
        source, before.n + after.n, evidence, next_checks=checks if state == "yes" else [],
    )  # fmt: skip


def _kept(findings: Findings, which: str, series: Series, start: int, end: int) -> Typical | None:
    part = Series(series.steps[start:end], series.tokens[start:end], series.values[start:end])
    return findings.cache.unchanged((RULE, which), (part,), lambda: _typical(series, start, end))


def _typical(series: Series, start: int, end: int) -> Typical | None:
    values = series.values[start:end]
    values = values[np.isfinite(values) & (values > 0.0)]
    if len(values) < MIN_POINTS - WARM:
        return None
    parts = np.array([np.median(part) for part in np.array_split(values, PARTS)])
    return Typical(float(np.median(values)), 1.25 * float(parts.std(ddof=1)) / float(np.sqrt(PARTS)), len(values))
