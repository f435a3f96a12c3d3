"""Rule `definition_changed`: did the train loss step at a restart, with held-out unmoved and no row repeated?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compare.gap import Change, change
from service.detect.findings import Findings
from service.detect.gaps import TrainGap
from service.detect.judgement import Cause, Evidence, Judgement

RULE = "definition_changed"
REACH = 6  # blocks on each side of the restart
MIN_AFTER = 3
LIMIT = 4.0 / 3.0  # tolerances
EVALUATIONS = 20
MIN_EVALUATIONS = 3
ALONE = 0.5  # held-out surely moved by less than this share of the step


@dataclass(frozen=True, slots=True)
class Step:
    """The train gap's step at a trainer start, and the held-out gap's change there."""

    restart: int
    train: Change
    heldout: Change | None
    first: int
    last: int


def judge(findings: Findings) -> Judgement:
    """`yes` at the newest restart with such a step that lasts; a step down needs row fingerprints that show no repeat,
    since a replay looks the same; `cannot tell` without a reference or while held-out evaluations are few."""
    train = findings.train
    restarts = sorted({s.start_step for s in findings.view.segments} - {0})
    if train is None or len(train.blocks) == 0:
        summary = "Cannot tell: the train loss cannot be compared with a reference."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="nats")
    limit = LIMIT * train.tolerance.value
    source = "a third more than the tolerance: healthy wander seldom jumps so far"
    steps = [s for s in (_kept_step(findings, train, r) for r in restarts) if s is not None]
    jumped = [s for s in steps if abs(s.train.value) > max(limit, 3.0 * s.train.se)]
    if not jumped:
        told = f"at {len(steps)} restarts" if steps else "there is no restart with blocks on both sides"
        return Judgement(RULE, "no", findings.at_step, f"The train loss did not step at a restart ({told}).",
                         unit="nats", limit=limit, limit_source=source, n=len(steps))  # fmt: skip
    step = jumped[-1]
    size, (low, high) = step.train.value, step.train.interval
    told = f"Train loss stepped by {size:+.3f} nats at the restart at step {step.restart:,}"
    moved = step.heldout
    if moved is not None and abs(moved.value) - 2.0 * moved.se > ALONE * abs(size):
        return _answer(findings, step, "no", f"{told}, and held-out moved with it.", limit, source)
    if moved is None or abs(moved.value) + 2.0 * moved.se > ALONE * abs(size):
        return _answer(
            findings, step, "cannot tell", f"{told}; too few held-out evaluations to tell more.", limit, source
        )
    rows = findings.rows
    if rows is not None and rows.episode is not None:
        return _answer(findings, step, "no", f"{told}; rows are repeated, which lowers it by itself.", limit, source)
    if rows is None and size < 0.0:
        alike = f"{told}; without row fingerprints a replay of known rows looks the same."
        return _answer(findings, step, "cannot tell", alike, limit, source)
    blocks = train.blocks
    extra = [
        Evidence("step of the train gap", size, "nats", "blocks after the restart minus blocks before it"),
        Evidence("held-out change there", moved.value, "nats", f"{moved.after} evaluations after the restart"),
    ]
    return Judgement(
        RULE, "yes", findings.at_step, f"{told}, while held-out did not move and no row is repeated.",
        (step.restart, int(blocks.last_step[step.first])),
        (float(blocks.last_tokens[max(step.first - 1, 0)]), float(blocks.last_tokens[step.first])), size, (low, high),
        "nats", limit, source, int(blocks.n[step.first : step.last].sum()), [*findings.evidence(), *extra],
        [Cause("z-loss is in the logged loss, or no longer", "possible", "MaxText's lm_loss holds it, AI2's does not"),
         Cause("masked tokens count in the mean, or no longer", "possible", "the mean is over other tokens"),
         Cause("the mean over micro-batches or hosts is weighted otherwise", "possible", "the batch was split anew")],
        ["Compare code and flags of the two trainer starts: loss, z-loss, masking, gradient accumulation.",
         "Compute both definitions on one batch of one checkpoint."],
    )  # fmt: skip


def _kept_step(findings: Findings, train: TrainGap, restart: int) -> Step | None:
    parts = (train, findings.heldout_gap)
    name = (RULE, restart, bool(findings.view.deviations))
    return findings.cache.unchanged(name, parts, lambda: _step_at(findings, train, restart))


def _step_at(findings: Findings, train: TrainGap, restart: int) -> Step | None:
    blocks = train.blocks
    before = np.flatnonzero(blocks.last_step <= restart)[-REACH:]
    after = np.flatnonzero(blocks.first_step > restart)[:REACH]
    if len(before) < MIN_AFTER or len(after) < MIN_AFTER:
        return None
    noise = float(np.median(train.sd[np.concatenate((before, after))]))
    moved = change(blocks.mean[before], blocks.mean[after], noise)
    # A step is there at once: the first blocks after it lie where the later ones do.
    at_once = float(np.median(blocks.mean[after[:MIN_AFTER]]) - np.median(blocks.mean[before[-MIN_AFTER:]]))
    if abs(at_once) < 0.7 * abs(moved.value):
        return None
    held = findings.heldout_gap
    beside: Change | None = None
    if held is not None:
        old = held.gap[held.steps <= restart][-EVALUATIONS:]
        new = held.gap[(held.steps > restart) & (held.steps <= blocks.last_step[after[-1]])]
        if len(new) < MIN_EVALUATIONS:  # evaluations may be rarer than six blocks
            new = held.gap[held.steps > restart][:MIN_EVALUATIONS]
        if len(old) >= MIN_EVALUATIONS and len(new) >= MIN_EVALUATIONS:
            beside = change(old, new, float(held.noise[-1]))
    return Step(restart, moved, beside, int(after[0]), int(after[-1]) + 1)


def _answer(findings: Findings, step: Step, state: str, summary: str, limit: float, source: str) -> Judgement:
    return Judgement(
        RULE, "no" if state == "no" else "cannot tell", findings.at_step, summary, value=step.train.value,
        interval=step.train.interval, unit="nats", limit=limit, limit_source=source, n=step.train.after,
        evidence=findings.evidence(),
    )  # fmt: skip
