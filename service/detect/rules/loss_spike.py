"""Rule `loss_spike`: is the train loss far above where it just was?"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from service.compare.noise import MAD_TO_SD
from service.detect.findings import TRAIN, Findings
from service.detect.judgement import Evidence, Judgement

RULE = "loss_spike"
MEMORY = 128  # points before, as OLMo-core's stability monitor takes them
MIN_MEMORY = 64
WIDTH = 7  # points whose median is looked at: three odd points alone are no spike
EVERY = 8
LIMIT = 6.0  # sd of one point
RECENT = 200  # points for which a spike is told after it began


def judge(findings: Findings) -> Judgement:
    """`yes` for 200 points after the median of seven lay more than 6 sd above the median of the 128 before them."""
    series = findings.view.metrics.get(TRAIN)
    if series is None or len(series) < MIN_MEMORY + WIDTH:
        n = 0 if series is None else len(series)
        summary = f"Cannot tell yet: {n} of {MIN_MEMORY + WIDTH} points of train loss."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, n=n)
    bad = findings.cache.non_finite(series)
    reach = RECENT + MEMORY + WIDTH
    part = slice(max(len(series) - reach - np.count_nonzero(bad >= len(series) - 2 * reach), 0), None)
    steps, tokens, values = series.steps[part], series.tokens[part], series.values[part]
    keep = np.isfinite(values)
    steps, tokens, values = steps[keep][-reach:], tokens[keep][-reach:], values[keep][-reach:]
    first = MEMORY if len(values) >= MEMORY + WIDTH else MIN_MEMORY
    if len(values) < first + WIDTH:
        summary = f"Cannot tell yet: {len(values)} of {MIN_MEMORY + WIDTH} finite points of train loss."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, n=len(values))
    now = np.median(sliding_window_view(values, WIDTH)[first:], axis=1)
    # The level before changes slowly: it is taken anew at every eighth point.
    before = sliding_window_view(values, first)[: len(now) : EVERY]
    level = np.median(before, axis=1)
    spread = MAD_TO_SD * np.median(np.abs(before - level[:, None]), axis=1)
    middle, sd = np.repeat(level, EVERY)[: len(now)], np.repeat(spread, EVERY)[: len(now)]
    excess = (now - middle) / np.maximum(sd, 1e-12 + 1e-6 * np.abs(middle))
    singles = int((values[first:] > np.append(middle, middle[-1:].repeat(WIDTH - 1))
                   + LIMIT * np.append(sd, sd[-1:].repeat(WIDTH - 1))).sum())  # fmt: skip
    evidence = [Evidence("single points above 6 sd", singles, "points", f"of the newest {len(values) - first:,}")]
    over = np.flatnonzero(excess > LIMIT)
    if len(over) == 0:
        top = float(excess.max())
        return Judgement(RULE, "no", findings.at_step, "No spike in the newest train losses.", value=top, unit="sd",
                         limit=LIMIT, limit_source="6 sd, as OLMo-core's stability monitor", n=len(values),
                         evidence=evidence)  # fmt: skip
    onset, peak = int(over[0]), int(over[np.argmax(excess[over])])
    height = float(now[peak] - middle[peak])
    inside = np.flatnonzero(values[first + onset :][:WIDTH] > middle[onset] + LIMIT * sd[onset])
    start = first + onset + (int(inside[0]) if len(inside) else 0)
    lasting = "it lasts" if excess[-1] > LIMIT else "it is over"
    return Judgement(
        RULE, "yes", findings.at_step,
        f"Train loss spiked by {height:.3f} nats ({excess[peak]:.0f} sd) at step {int(steps[start]):,}; {lasting}.",
        (int(steps[max(start - 1, 0)]), int(steps[start])), (float(tokens[max(start - 1, 0)]), float(tokens[start])),
        float(excess[peak]), None, "sd", LIMIT, "6 sd, as OLMo-core's stability monitor", len(values), evidence,
        next_checks=["Look at gradient norm and learning rate in the steps before.",
                     "Look at the rows of those steps; if the loss does not come back, restart before the spike."],
    )  # fmt: skip
