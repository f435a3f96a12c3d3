"""Rule `improvement`: train and held-out both sank below the reference's: a real gain, and another experiment."""

from __future__ import annotations

import numpy as np

from service.compare.medians import median
from service.detect.causes import ORDER
from service.detect.drift_causes import of_drift
from service.detect.findings import Findings
from service.detect.heldout import FLAT_SHARE
from service.detect.judgement import Cause, Evidence, Judgement
from service.detect.rules import evaluation_changed, heldout_regression, train_drift

RULE = "improvement"
FOLLOWS = 0.6  # of the train change that held-out makes as well: real gains measured 0.98 to 1.00
SURE = 2.0  # healthy sd of a block mean between the train gap and a third of the held-out one
CHECKS = [
    "Compare learning rate, batch size, optimizer and data mix with the reference's recipe.",
    "Check that no held-out text is in the training data: both losses would sink.",
]


def judge(findings: Findings) -> Judgement:
    """`yes` when train sank below the reference and held-out followed by at least 0.6 of it, or held-out sank beyond
    its tolerance with train surely below too; `no` when train did not sink or held-out stayed; else `cannot tell`."""
    train, held = findings.train, findings.heldout
    drift = findings.said(train_drift.judge)
    gained = _by_heldout(findings)
    if gained is not None:
        return gained
    if train is None or drift.state == "cannot tell":
        return _answer(findings, "cannot tell", drift.summary)
    if not train_drift.sunk(findings):
        return _answer(findings, "no", "Train loss has not sunk below the reference.")
    if held.answer == "flat":
        return _answer(findings, "no", "Train loss sank alone: held-out did not follow.")
    if held.answer != "follows" or held.heldout is None or held.train is None or held.train.value >= 0.0:
        return _answer(
            findings, "cannot tell", f"Train loss sank; cannot tell yet whether held-out follows: {held.why}."
        )
    share = held.heldout.value / held.train.value
    if share < FOLLOWS:
        summary = f"Train loss sank; held-out followed by {share:.0%} of it: neither a clear gain nor memorization."
        return _answer(findings, "cannot tell", summary)
    steps = drift.since_step or (0, findings.at_step)
    extra = Evidence("held-out share", share, "", "held-out change over train change; 0.98 to 1.00 in measured gains")
    return Judgement(
        RULE, "yes", findings.at_step,
        f"Train and held-out both sank below {findings.view.reference_name or 'the reference'} (held-out by "
        f"{share:.0%} of the train change) since step {steps[0]:,} to {steps[1]:,}: a gain, and another experiment.",
        drift.since_step, drift.since_tokens, drift.value, drift.interval, "nats", drift.limit, drift.limit_source,
        held.n, [*findings.evidence(), extra], _causes(findings), list(CHECKS),
    )  # fmt: skip


def _by_heldout(findings: Findings) -> Judgement | None:
    """A gain that held-out shows while the train gap is still within what healthy runs do: the held-out loss is below
    the reference's beyond its tolerance, and the train loss surely below by a third of that or more."""
    train, held, now = findings.train, findings.heldout_gap, findings.gap_now
    if train is None or held is None or now is None or train.open is not None:
        return None
    episode = heldout_regression.open_now(findings, held, "below")
    newest = held.gap[-heldout_regression.MIN_EVALUATIONS :]
    value = median(newest)
    if episode is None or now[0] + SURE * float(train.sd[-1]) > FLAT_SHARE * value:
        return None
    if findings.said(evaluation_changed.judge).state == "yes":
        return None
    half = 1.96 * float(np.sqrt((np.pi / 2 if len(newest) > 2 else 1.0) / len(newest)) * held.noise[-1])
    first = max(episode.onset - 1, 0)
    steps = (int(held.steps[first]), int(held.steps[episode.onset]))
    where = findings.view.reference_name or "the reference"
    return Judgement(
        RULE, "yes", findings.at_step,
        f"{held.metric} is {value:+.3f} nats below {where} since step {steps[0]:,} to {steps[1]:,}, and the train loss "
        f"{now[0]:+.3f}: a gain, and another experiment.",
        steps, (float(held.tokens[first]), float(held.tokens[episode.onset])), value, (value - half, value + half),
        "nats", held.tolerance.value, held.tolerance.source, len(held), findings.evidence(), _causes(findings),
        list(CHECKS),
    )  # fmt: skip


def _causes(findings: Findings) -> list[Cause]:
    better = Cause("a better optimizer or batch size", "possible", "both losses sink")
    found = [*of_drift(findings, "below", "together"), better]
    return sorted(found, key=lambda c: ORDER.index(c.weight))


def _answer(findings: Findings, state: str, summary: str) -> Judgement:
    return Judgement(
        RULE, "no" if state == "no" else "cannot tell", findings.at_step, summary, unit="nats",
        evidence=findings.evidence(), n=findings.heldout.n,
    )  # fmt: skip
