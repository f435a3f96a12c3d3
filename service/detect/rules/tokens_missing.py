"""Rule `tokens_missing`: are there steps or tokens that the run counts but did not train on, or did not report?"""

from __future__ import annotations

import numpy as np

from service.compare.gap import stride_of
from service.detect.findings import TRAIN, Findings
from service.detect.inputs import Floats, Ints, Series
from service.detect.judgement import Evidence, Judgement

RULE = "tokens_missing"
SKIPPED = "optim/skipped"
RECENT = 1_000  # points of `optim/skipped` that are looked at
LIMIT = 0.01  # share of steps
REGULAR = 0.99  # of the points must lie one stride after the one before, or holes cannot be told from the log's own
MIN_POINTS = 100


def judge(findings: Findings) -> Judgement:
    """`yes` when the token count jumps ahead by a step or more, or over 1 % of the steps are not in the log, or over
    1 % of the newest 1,000 steps were skipped by the optimizer."""
    series = findings.view.metrics.get(TRAIN)
    if series is None or len(series) < MIN_POINTS:
        n = 0 if series is None else len(series)
        return Judgement(RULE, "cannot tell", findings.at_step, f"Cannot tell yet: {n} of {MIN_POINTS} points of loss.")
    stride = stride_of(series.steps)
    holes, jumps = findings.cache.scan(f"steps and tokens {stride}", series, lambda s, a: find_events(s, a, stride))
    regular = 1.0 - len(holes) / len(series) >= REGULAR
    missing = int((series.steps[holes] - series.steps[holes - 1] - stride).sum()) if regular else 0
    share = missing / max(int(series.steps[-1] - series.steps[0]), 1)
    ahead = _ahead(series, jumps)
    skipped = _skipped(findings)
    lost = (
        "not judged: the log keeps no regular distance" if not regular else f"of steps since {int(series.steps[0]):,}"
    )
    evidence = [
        Evidence("steps not in the log", missing if regular else None, "steps", lost),
        Evidence("token count jumps ahead", float(ahead.sum()), "tokens", f"at {len(ahead)} places"),
        Evidence("skipped steps", skipped, "share", f"of the newest {RECENT:,}, by {SKIPPED}"),
    ]
    found: list[tuple[int, str]] = []
    if len(ahead):
        i = int(jumps[-1])
        found.append((i, f"the token count jumps by {ahead[-1]:,.0f} tokens at step {int(series.steps[i]):,}"))
    if regular and share > LIMIT:
        i = int(holes[0])
        found.append((i, f"{missing:,} steps ({share:.1%}) are not in the log"))
    if skipped is not None and skipped > LIMIT:
        found.append((len(series) - 1, f"the optimizer skipped {skipped:.1%} of the newest steps"))
    if not found:
        state = "no" if regular else "cannot tell"
        summary = "No steps or tokens are missing." if regular else "Cannot tell: the log keeps no regular distance."
        return Judgement(RULE, state, findings.at_step, summary, value=share, unit="share", limit=LIMIT,
                         limit_source="1 % of the steps", n=len(series), evidence=evidence)  # fmt: skip
    i = min(index for index, _ in found)
    told = "; ".join(text for _, text in found)
    before = max(i - 1, 0)
    return Judgement(
        RULE, "yes", findings.at_step, f"{told[:1].upper()}{told[1:]}.",
        (int(series.steps[before]), int(series.steps[i])), (float(series.tokens[before]), float(series.tokens[i])),
        share, None, "share", LIMIT, "1 % of the steps", len(series), evidence,
        next_checks=["Compare the loader's position with step × batch at the last restart.",
                     "See whether a process's spool still holds records (`pacenote sync`)."],
    )  # fmt: skip


def find_events(series: Series, start: int, stride: int) -> tuple[Ints, Ints]:
    """Indices ≥ `start` of points that come later than a stride after the one before (holes), and of those where more
    tokens passed per step than right before and right after (jumps; known once the next point is)."""
    back = max(start - 2, 0)
    gone = np.diff(series.steps[back:])
    holes: Ints = np.flatnonzero(gone > stride) + back + 1
    holes = holes[holes >= start]
    if len(gone) < 3:
        return holes, np.zeros(0, np.int64)
    rate: Floats = np.diff(series.tokens[back:]) / np.maximum(gone, 1)
    around = np.maximum(rate[:-2], rate[2:])
    excess = (rate[1:-1] - around) * gone[1:-1]
    jumps: Ints = np.flatnonzero((around > 0.0) & (excess >= 0.999 * around)) + back + 2
    return holes, jumps[jumps >= start]


def _ahead(series: Series, jumps: Ints) -> Floats:
    """Tokens by which the count runs ahead at each jump."""
    steps, tokens = series.steps, series.tokens
    usual = (tokens[jumps - 1] - tokens[jumps - 2]) / np.maximum(steps[jumps - 1] - steps[jumps - 2], 1)
    return tokens[jumps] - tokens[jumps - 1] - usual * (steps[jumps] - steps[jumps - 1])


def _skipped(findings: Findings) -> float | None:
    series = findings.view.metrics.get(SKIPPED)
    if series is None or len(series) < MIN_POINTS:
        return None
    values = series.values[-RECENT:]
    values = values[np.isfinite(values)]
    return float((values > 0.5).mean()) if len(values) else None
