"""Rule `initial_parity`: does the run begin where the reference began: the same weights, the same first losses?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compare.noise import step_noise
from service.detect.deviations import allowance
from service.detect.findings import TRAIN, Findings
from service.detect.gaps import shared_heldout, tolerance_of, unit_of
from service.detect.judgement import Cause, Evidence, Judgement, State
from service.detect.parity import PER_STEP, beside, first_losses, step_tokens

RULE = "initial_parity"
KL = "parity/kl"
TRAIN_CHANNEL = "first train losses"
KL_LIMIT = 1e-3  # nats per token
LOSS_LIMIT = 0.05  # nats
HELDOUT_LIMIT = 0.1  # nats; five healthy seeds of one 124M model begin within 0.07 (mn_t3_20260611_muonh)
SURE = 3.0


@dataclass(frozen=True, slots=True)
class Channel:
    """One way of comparing the beginnings: `value` with standard error `se` against `limit`, all in nats.

    `before` is the part of it that was measured before the first update, where `value` is of later ones too: healthy
    runs soon part by more than the limit while they learn fastest, so no fault is seen unless it was there before.
    """

    name: str
    value: float
    se: float
    limit: float
    n: int
    step: int
    why: str
    before: float | None = None

    @property
    def state(self) -> State:
        """`yes`: surely beyond the limit; `no`: surely inside; `cannot tell` in between."""
        if abs(self.value) - SURE * self.se > self.limit:
            return "yes" if self.before is None or abs(self.before) > self.limit else "cannot tell"
        return "no" if abs(self.value) + SURE * self.se <= self.limit else "cannot tell"


def judge(findings: Findings) -> Judgement:
    """`yes` where the divergence from the reference's model (`parity/kl`), the first held-out loss or the first train
    losses lie surely beyond their limits; `no` where one lies surely inside and none beyond; else `cannot tell`."""
    found = [c for c in (_kl(findings), _heldout(findings), _train(findings)) if c is not None]
    if not found:
        unit = unit_of(findings.view, TRAIN, findings.cache)
        summary = "Cannot tell: neither parity/kl nor a loss of the first updates at the reference's tokens is there."
        if unit is not None:
            summary = f"Cannot tell: the train loss seems to be {unit}, not in nats per token."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="nats")
    off = [c for c in found if c.state == "yes"]
    good = [c for c in found if c.state == "no"]
    state: State = "yes" if off else "no" if good else "cannot tell"
    told = (off or good or found)[0]
    words = {"yes": "does not begin where the reference did", "no": "begins where the reference did"}
    verb = "are off by" if told.name == TRAIN_CHANNEL else "is"
    shown = f"{told.name} {verb} {told.value:+.4g} ± {1.96 * told.se:.2g} nats (limit {told.limit:.2g})"
    summary = f"The run {words[state]}: {shown}." if state != "cannot tell" else f"Cannot tell yet: {shown}."
    evidence = [
        Evidence(c.name, f"{c.value:+.5g} (± {1.96 * c.se:.2g})", "nats", f"limit {c.limit:.2g}; {c.why}")
        for c in found
    ]
    at = (findings.tokens_at(told.step), findings.tokens_at(told.step))
    fault = state == "yes"
    return Judgement(
        RULE, state, findings.at_step, summary, (told.step, told.step) if fault else None, at if fault else None,
        told.value, (told.value - 1.96 * told.se, told.value + 1.96 * told.se), "nats", told.limit, told.why, told.n,
        evidence, _causes(off) if fault else [],
        ["Evaluate the initial checkpoint and the reference's on the same rows, and compare logits layer by layer.",
         "See whether steps are counted from 0 in one log and from 1 in the other."] if fault else [],
    )  # fmt: skip


def _kl(findings: Findings) -> Channel | None:
    series = findings.view.metrics.get(KL)
    if series is None or not np.isfinite(series.values).any():
        return None
    first = int(np.argmax(np.isfinite(series.values)))
    why = "divergence of the next-token distributions from the reference's model; rounding to bfloat16 stays below it"
    return Channel(KL, float(series.values[first]), 0.0, KL_LIMIT, 1, int(series.steps[first]), f"assumed: {why}")


def _heldout(findings: Findings) -> Channel | None:
    """The held-out loss before the first update, where both were evaluated there."""
    view, metric = findings.view, shared_heldout(findings.view)
    if metric is None or unit_of(view, metric, findings.cache) is not None:
        return None
    run, reference = view.metrics[metric], view.reference[metric]
    start = min((s.start_step for s in view.segments), default=0)
    if len(run) == 0 or int(run.steps[0]) != start or not np.isfinite(run.values[0]):
        return None
    train = view.metrics.get(TRAIN)
    per_step = step_tokens(train) if train is not None and len(train) else 1.0
    at, met = beside(run.tokens[:1], reference.tokens, per_step)
    difference = run.values[:1] - reference.values[at]
    allowed = allowance(view.deviations, metric, run.steps[:1], run.steps[:1], run.tokens[:1])
    gap = float((difference if allowed is None else allowed.unexplained(difference))[0])
    if not met[0] or not np.isfinite(gap):
        return None
    why = f"{metric} before the first update; assumed: other random weights begin within {HELDOUT_LIMIT} nats"
    noise = step_noise(reference.values) or 0.0
    return Channel("first held-out loss", gap, min(noise, HELDOUT_LIMIT / (2.0 * SURE)), HELDOUT_LIMIT, 1, start, why)


def _train(findings: Findings) -> Channel | None:
    first = first_losses(findings.view, TRAIN)
    if first is None or unit_of(findings.view, TRAIN, findings.cache) is not None:
        return None
    tolerance = tolerance_of(findings.view, TRAIN, findings.cache)
    se = first.se(tolerance.noise_sd or step_noise(findings.view.reference[TRAIN].values))
    if se is None:
        return None
    allowed = allowance(findings.view.deviations, TRAIN, first.steps, first.steps, first.tokens)
    gap = first.gap if allowed is None else allowed.unexplained(first.gap)
    why = (
        f"mean over {len(first)} of the first updates, at tokens equal within {PER_STEP:g} of a step; assumed: other "
        f"random weights begin within {LOSS_LIMIT} nats"
    )
    value, before = float(gap.mean()), float(gap[0])
    return Channel(TRAIN_CHANNEL, value, se, LOSS_LIMIT, len(first), int(first.steps[0]), why, before)


def _causes(off: list[Channel]) -> list[Cause]:
    weights = any(c.name != TRAIN_CHANNEL for c in off)
    because = ", ".join(f"{c.name} {c.value:+.3g} nats" for c in off)
    name = "other initial weights, or a fault in their conversion"
    initial = Cause(name, "likely" if weights else "possible", because)
    if weights:
        return [initial]
    return [initial, Cause("another loss definition (z-loss, masked tokens), or another learning rate from the start",
                           "possible", because)]  # fmt: skip
