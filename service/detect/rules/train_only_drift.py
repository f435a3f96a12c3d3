"""Rule `train_only_drift`: train loss sinks below the reference, held-out does not follow: the sign of memorization."""

from __future__ import annotations

from service.compare.gap import generalization_gap_change
from service.detect import drift_causes
from service.detect.findings import Findings, left_own_offset
from service.detect.gaps import TrainGap, shared_heldout
from service.detect.heldout import HeldoutFinding
from service.detect.judgement import Evidence, Judgement, State
from service.detect.rules import train_drift

RULE = "train_only_drift"


def judge(findings: Findings) -> Judgement:
    """`yes` when the upper bound of the held-out improvement since the onset is below a third of the train change; `no`
    when train has not sunk or held-out follows; `cannot tell` in between. Without enough of a reference the run's own
    held-out - train gap is judged against its early value."""
    train = findings.train
    held = findings.heldout
    if train is None or shared_heldout(findings.view) is None:
        return _own(findings, held)
    drift = findings.said(train_drift.judge)
    if drift.state == "cannot tell":
        return _answer(findings, "cannot tell", f"Cannot tell: {_lower(drift.summary)}", held)
    if not train_drift.sunk(findings):
        return _answer(findings, "no", "Train loss has not sunk below the reference.", held)
    if held.answer == "follows":
        return _answer(findings, "no", f"Train loss sank, and held-out followed: {held.why}.", held)
    if held.answer == "cannot tell":
        return _answer(
            findings, "cannot tell", f"Train loss sank; cannot tell yet whether held-out follows: {held.why}.", held
        )
    return _memorizing(findings, train, drift, held)


def _memorizing(findings: Findings, train: TrainGap, drift: Judgement, held: HeldoutFinding) -> Judgement:
    assert held.heldout is not None
    assert held.train is not None
    assert drift.value is not None
    steps, tokens, value, interval = drift.since_step, drift.since_tokens, drift.value, drift.interval
    if held.onset is not None:  # pairs date it better, and measure the fall since then
        steps, tokens = held.onset, (findings.tokens_at(held.onset[0]), findings.tokens_at(held.onset[1]))
        value, interval = held.train.value, held.train.interval
    assert steps is not None
    total = generalization_gap_change(held.train, held.heldout)
    where = findings.view.reference_name or "the reference"
    if held.onset is None and left_own_offset(train):
        where = f"its own early offset from {where}"
    sank = f"sank by {abs(value):.3f} nats against" if held.onset is not None else f"sank {abs(value):.3f} nats below"
    summary = (
        f"Train loss {sank} {where} since step {steps[0]:,} to {steps[1]:,}, while {held.metric} changed by "
        f"{held.heldout.value:+.3f}: the model memorizes."
    )
    low, high = total.interval
    extra = Evidence(
        "generalization gap change", f"{total.value:+.4f} ({low:+.4f} … {high:+.4f})", "nats",
        "train gap change minus held-out gap change; about 0 for a real gain, below 0 for memorization",
    )  # fmt: skip
    return Judgement(
        RULE, "yes", findings.at_step, summary, steps, tokens, value, interval, "nats",
        drift.limit, drift.limit_source, held.n, [*findings.evidence(), extra],
        drift_causes.of_drift(findings, "below", "alone"), drift_causes.next_checks(findings),
    )  # fmt: skip


def _own(findings: Findings, held: HeldoutFinding) -> Judgement:
    if held.answer == "flat" and held.onset is not None and held.heldout is not None and held.train is not None:
        tokens = (findings.tokens_at(held.onset[0]), findings.tokens_at(held.onset[1]))
        summary = (
            f"Train loss sank by {-held.train.value:.3f} nats since step {held.onset[0]:,} to {held.onset[1]:,}, while "
            f"{held.metric} changed by {held.heldout.value:+.3f}: the run's own held-out - train gap grew by "
            f"{held.excess or 0.0:.3f} (no reference used)."
        )
        return Judgement(
            RULE, "yes", findings.at_step, summary, held.onset, tokens, held.excess, None, "nats", held.limit,
            "assumed: AI2's own gap moved by 0.04 from step 10,000 to the end", held.n, findings.evidence(),
            drift_causes.of_drift(findings, "below", "alone"), drift_causes.next_checks(findings),
        )  # fmt: skip
    if held.answer == "follows" and held.own:
        return _answer(
            findings, "no", "The run's own held-out - train gap is within its limit (no reference used).", held
        )
    return _answer(findings, "cannot tell", f"Cannot tell: {held.why}.", held)


def _answer(findings: Findings, state: State, summary: str, held: HeldoutFinding) -> Judgement:
    now = findings.gap_now
    train = findings.train
    return Judgement(
        RULE, state, findings.at_step, summary,
        value=now[0] if now else held.excess, interval=(now[1], now[2]) if now else None, unit="nats",
        limit=train.tolerance.value if train else held.limit,
        limit_source=train.tolerance.source if train else "",
        n=held.n, evidence=findings.evidence(),
    )  # fmt: skip


def _lower(text: str) -> str:
    text = text.removeprefix("Cannot tell yet: ").removeprefix("Cannot tell: ")
    return text[:1].lower() + text[1:]
