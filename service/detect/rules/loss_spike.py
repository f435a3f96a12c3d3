"""Rule `loss_spike`: is the train loss far above where it just was, or for good above the best it has been?"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from service.compare.medians import row_medians
from service.compare.noise import MAD_TO_SD, step_noise
from service.detect.findings import TRAIN, Findings
from service.detect.inputs import Floats, Series
from service.detect.judgement import Evidence, Judgement

RULE = "loss_spike"
MEMORY = 128  # points before, as OLMo-core's stability monitor takes them
MIN_MEMORY = 64
WIDTH = 7  # points whose median is looked at: three odd points alone are no spike
EVERY = 8
LIMIT = 6.0  # sd of one point
RECENT = 200  # points for which a spike is told after it began
RISE = 0.25  # nats, assumed: stages and schedules move a loss by less
RISE_SD = 4.0  # of one point: several in a row are that far off
PLACES = 2_048  # of the whole series among which its best level is looked for
FEW = 3  # points whose median is such a level; so many after it are above where the loss has risen for good
LEAST = 8  # points
STAYED = WIDTH  # newest points that are all above


def judge(findings: Findings) -> Judgement:
    """`yes` for 200 points after the median of seven lay more than 6 sd above the median of the 128 before them, and
    while the loss stays above the best level it has had, by more than 4 sd and 0.25 nats."""
    series = findings.view.metrics.get(TRAIN)
    spiked = _spiked(findings, series)
    if spiked.state == "yes" or series is None:
        return spiked
    return _risen(findings, series) or spiked


def _risen(findings: Findings, series: Series) -> Judgement | None:
    """The loss has risen for good: no single newest point comes near the best median of three before it."""
    if len(series) < LEAST:
        return None
    width = 1
    while len(series) // width > PLACES:
        width *= 2
    places = Series(series.steps[::width], series.tokens[::width], series.values[::width])
    newest = series.values[-STAYED if len(series) > MIN_MEMORY else -FEW :]
    lowest = findings.cache.unchanged((RULE, "lowest"), (places,), lambda: _lowest(places.values))
    if len(newest) == 0 or not np.isfinite(newest).all() or float(newest.min()) - lowest <= RISE:
        return None  # no median of three is lower than that
    keep = np.isfinite(places.values)
    values, steps, tokens = places.values[keep], places.steps[keep], places.tokens[keep]
    if len(values) < LEAST:
        return None
    level = row_medians(sliding_window_view(values, FEW))
    at = int(np.argmin(level))
    best, sd = float(level[at]), step_noise(values) or 0.0
    limit = max(RISE, RISE_SD * sd)
    rise = float(np.median(newest)) - best
    over = np.flatnonzero(values[at + FEW :] - best > limit)
    if float(newest.min()) - best <= limit or len(over) == 0:
        return None
    first = at + FEW + int(over[0])
    return Judgement(
        RULE, "yes", findings.at_step,
        f"Train loss has risen by {rise:.3f} nats above its best level, of step {int(steps[at]):,} to "
        f"{int(steps[at + FEW - 1]):,}, and stays there.",
        (int(steps[first - 1]), int(steps[first])), (float(tokens[first - 1]), float(tokens[first])),
        rise, None, "nats", limit, "4 sd of a point, and 0.25 nats at least, assumed", len(values),
        [Evidence("best level", best, "nats", f"median of {FEW} points, the lowest there was")],
        next_checks=["Look at gradient norm, learning rate, loss scale and skipped steps before it rose.",
                     "Restart from a checkpoint before it rose."],
    )  # fmt: skip


def _lowest(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.min()) if len(finite) else np.inf


def _spiked(findings: Findings, series: Series | None) -> Judgement:
    if series is None or len(series) < MIN_MEMORY + WIDTH:
        n = 0 if series is None else len(series)
        summary = f"Cannot tell yet: {n} of {MIN_MEMORY + WIDTH} points of train loss."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, n=n)
    bad = findings.cache.non_finite(series, TRAIN)
    reach = RECENT + MEMORY + WIDTH
    part = slice(max(len(series) - reach - np.count_nonzero(bad >= len(series) - 2 * reach), 0), None)
    steps, tokens, values = series.steps[part], series.tokens[part], series.values[part]
    keep = np.isfinite(values)
    steps, tokens, values = steps[keep][-reach:], tokens[keep][-reach:], values[keep][-reach:]
    first = MEMORY if len(values) >= MEMORY + WIDTH else MIN_MEMORY
    if len(values) < first + WIDTH:
        summary = f"Cannot tell yet: {len(values)} of {MIN_MEMORY + WIDTH} finite points of train loss."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, n=len(values))
    now = row_medians(sliding_window_view(values, WIDTH)[first:])
    # The level before changes slowly: it is taken anew at every eighth point.
    before = sliding_window_view(values, first)[: len(now) : EVERY]
    level = row_medians(before)
    spread = MAD_TO_SD * row_medians(np.abs(before - level[:, None]))
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
