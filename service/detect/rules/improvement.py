"""Rule `improvement`: train and held-out both sank below the reference's: a real gain, and another experiment."""

from __future__ import annotations

from service.detect.causes import ORDER
from service.detect.drift_causes import of_drift
from service.detect.findings import Findings, drift_now
from service.detect.judgement import Cause, Evidence, Judgement
from service.detect.rules import train_drift

RULE = "improvement"
FOLLOWS = 0.6  # of the train change that held-out makes as well: real gains measured 0.98 to 1.00


def judge(findings: Findings) -> Judgement:
    """`yes` when train sank below the reference and held-out followed by at least 0.6 of it; `no` when train did not
    sink or held-out stayed; `cannot tell` in between."""
    train, held = findings.train, findings.heldout
    drift = train_drift.judge(findings)
    if train is None or drift.state == "cannot tell":
        return _answer(findings, "cannot tell", drift.summary)
    if train.open is None or train.open.side != "below":
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
    now = drift_now(train)
    steps, tokens = train_drift.onset_of(train, train.open)
    extra = Evidence("held-out share", share, "", "held-out change over train change; 0.98 to 1.00 in measured gains")
    return Judgement(
        RULE, "yes", findings.at_step,
        f"Train and held-out both sank below {findings.view.reference_name or 'the reference'} (held-out by "
        f"{share:.0%} of the train change) since step {steps[0]:,} to {steps[1]:,}: a gain, and another experiment.",
        steps, tokens, now[0], (now[1], now[2]), "nats", train.tolerance.value, train.tolerance.source, held.n,
        [*findings.evidence(), extra], _causes(findings),
        ["Compare learning rate, batch size, optimizer and data mix with the reference's recipe.",
         "Check that no held-out text is in the training data: both losses would sink."],
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
