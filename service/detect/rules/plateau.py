"""Rule `plateau`: has the train loss stopped falling where the reference's goes on?"""

from __future__ import annotations

import numpy as np

from service.compare.gap import change
from service.compare.medians import median
from service.detect.findings import TRAIN, Findings
from service.detect.judgement import Evidence, Judgement

RULE = "plateau"
ENDS = 0.2  # of the span: what its first and last value are taken from
MIN_BLOCKS = 10
WORTH = 3.0  # tolerances that the reference must have fallen by, or nothing can be said
SHARE = 1.0 / 3.0  # of the reference's fall that a run on a plateau does not make
SURE = 3.0


def judge(findings: Findings) -> Judgement:
    """Over the last doubling of tokens: `yes` if the run fell surely by less than a third of what the reference did."""
    train = findings.train
    if train is None or len(train.blocks) < MIN_BLOCKS:
        summary = "Cannot tell: a plateau is judged against the reference's fall, over ten blocks or more."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="nats")
    blocks = train.blocks
    base = findings.cache.get(TRAIN, findings.view.reference[TRAIN])
    origin = min(float(findings.view.metrics[TRAIN].tokens[0]), float(base.points[0]))
    newest = float(blocks.last_tokens[-1])
    start = int(np.searchsorted(blocks.first_tokens, origin + (newest - origin) / 2.0))
    n = len(blocks) - start
    ends = max(int(n * ENDS), 2)
    if n < MIN_BLOCKS:
        summary = f"Cannot tell yet: {n} of {MIN_BLOCKS} blocks of train loss in the last doubling of tokens."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="nats", n=n)
    at = np.interp((blocks.first_tokens + blocks.last_tokens)[start:] / 2.0, base.tokens, base.values)
    fall = median(at[:ends]) - median(at[-ends:])
    gap = blocks.mean[start:]
    noise = median(np.maximum(train.sd[start:], blocks.se[start:]))
    widened = change(gap[:ends], gap[-ends:], noise)
    own = fall - widened.value
    evidence = [
        Evidence("fall of the train loss", own, "nats", "over the last doubling of tokens"),
        Evidence("fall of the reference", fall, "nats", "over the same tokens"),
    ]
    half = SURE * widened.se
    steps = (int(blocks.first_step[start]), int(blocks.last_step[start + ends - 1]))
    tokens = (float(blocks.first_tokens[start]), float(blocks.last_tokens[start + ends - 1]))
    if fall < WORTH * train.tolerance.value:
        summary = f"Cannot tell: the reference itself fell by {fall:.3f} nats only over the last doubling of tokens."
        state = "cannot tell"
    elif own + half < SHARE * fall:
        return Judgement(
            RULE, "yes", findings.at_step,
            f"Train loss fell by {own:.3f} nats since step {steps[0]:,}, where the reference fell by {fall:.3f}.",
            steps, tokens, own, (own - half, own + half), "nats", SHARE * fall, "a third of the reference's fall", n,
            evidence,
            next_checks=["Look at the learning rate (is it zero?), skipped steps and the gradient norm.",
                         "See whether the optimizer's state was lost or frozen at a restart."],
        )  # fmt: skip
    elif own - half > SHARE * fall:
        state, summary = "no", f"Train loss goes on falling ({own:.3f} nats over the last doubling of tokens)."
    else:
        state, summary = "cannot tell", "Cannot tell yet: noise hides whether the train loss goes on falling."
    return Judgement(
        RULE, "no" if state == "no" else "cannot tell", findings.at_step, summary, value=own,
        interval=(own - half, own + half), unit="nats", limit=SHARE * fall,
        limit_source="a third of the reference's fall", n=n, evidence=evidence,
    )  # fmt: skip
