"""Rule `evaluation_changed`: is the held-out loss of another set than before, or did it jump by itself, for good?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compare.gap import Change, change
from service.detect import sets
from service.detect.beyond import beyond_reference
from service.detect.findings import Findings
from service.detect.gaps import heldout_metrics, heldout_unit
from service.detect.heldout_gap import HeldoutGap, train_change
from service.detect.inputs import RunView
from service.detect.judgement import Cause, Evidence, Judgement

RULE = "evaluation_changed"
SIDE = 3  # evaluations on each side of a jump; a one-off jump is back at the next one
BASELINE = 20
LIMIT_NOISE = 6.0  # the jump in sd of one gap
LIMIT_TOLERANCE = 2.0
ALONE = 0.5  # the train gap moved by surely less than this share of it
TRAIN_BLOCKS = 10


@dataclass(frozen=True, slots=True)
class Jump:
    """The held-out gap jumps before evaluation `at`, by `held`; `train` moved by that much at the same time."""

    at: int
    held: Change
    train: Change | None

    @property
    def alone(self) -> bool | None:
        """Whether train surely stayed; None where that cannot be told."""
        if self.train is None:
            return None
        most = abs(self.train.value) + 2.0 * self.train.se
        if most < ALONE * abs(self.held.value):
            return True
        least = abs(self.train.value) - 2.0 * self.train.se
        return None if least < ALONE * abs(self.held.value) else False


def judge(findings: Findings) -> Judgement:
    """`yes` while the set that is evaluated is another one than before, or surely another than the reference's, and
    while the gap stays where a jump put it that train did not share; `cannot tell` with few evaluations,
    and instead of `no` behind the end of the reference."""
    said = _other_set(findings)
    if said is not None:
        return said
    held = findings.heldout_gap
    if held is None:
        unit = heldout_unit(findings.view, findings.cache)
        summary = f"Cannot tell: {unit or 'run and reference share no held-out loss'}."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="nats")
    limit = max(LIMIT_NOISE * float(held.noise[-1]), LIMIT_TOLERANCE * held.tolerance.value)
    source = "six sd of one gap, or twice the held-out tolerance"
    if len(held) < 2 * SIDE:
        summary = f"Cannot tell yet: {len(held)} of {2 * SIDE} evaluations of {held.metric}."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="nats", n=len(held))
    parts = (held, findings.train)
    jump = findings.cache.unchanged((RULE, bool(findings.view.deviations)), parts, lambda: _newest_jump(findings, held))
    ended = beyond_reference(findings.view, held.metric, findings.cache)
    if jump is None or jump.alone is False:
        moved = "" if jump is None else f" It jumped by {jump.held.value:+.3f}, and the train loss moved with it."
        summary = f"{held.metric} did not jump by itself.{moved}"
        if ended is not None:
            summary = f"Cannot tell of what came since: {ended}; until then it did not jump by itself.{moved}"
        return Judgement(
            RULE, "no" if ended is None else "cannot tell", findings.at_step, summary, unit="nats", limit=limit,
            limit_source=source, n=len(held), evidence=findings.evidence(),
        )  # fmt: skip
    size, low, high = jump.held.value, *jump.held.interval
    steps = (int(held.steps[jump.at - 1]), int(held.steps[jump.at]))
    tokens = (float(held.tokens[jump.at - 1]), float(held.tokens[jump.at]))
    told = f"{held.metric} jumped by {size:+.3f} nats between step {steps[0]:,} and {steps[1]:,}"
    if jump.alone is None:
        return Judgement(
            RULE, "cannot tell", findings.at_step, f"{told}; cannot tell whether the train loss moved with it.",
            value=size, interval=(low, high), unit="nats", limit=limit, limit_source=source, n=len(held),
            evidence=findings.evidence(),
        )  # fmt: skip
    train = jump.train
    assert train is not None
    evidence = [*findings.evidence(), Evidence("train change at the jump", train.value, "nats", "it stayed")]
    told += " and stayed there, while the train loss did not move"
    told += "." if ended is None else f"; what came since is not compared: {ended}."
    return Judgement(
        RULE, "yes", findings.at_step, told, steps, tokens,
        size, (low, high), "nats", limit, source, len(held), evidence, _causes(findings, steps),
        ["Compare the evaluation set, its tokenization and the evaluator's code before and after.",
         "Evaluate a checkpoint from before the jump with today's evaluator: the difference is the evaluator's."],
    )  # fmt: skip


def _other_set(findings: Findings) -> Judgement | None:
    """What the ids of the sets say of the held-out loss that counts first."""
    view = findings.view
    for metric in heldout_metrics(view):
        points = view.metrics[metric]
        theirs, change = sets.other_than_the_reference(view, metric), sets.newest_change(view, metric, None)
        mine = sets.newest_set(view, metric)
        if theirs:
            first = int(points.steps[0]) if len(points) else findings.at_step
            since = (first, first) if change is None else (change.before, change.step)
            summary = f"{metric} is of the set {mine}, the reference's of {theirs}: they are not compared."
        elif change is not None and change.new != _first_set(view, metric):
            since = (change.before, change.step)
            summary = (
                f"{metric} is of the set {change.new} since step {change.step:,}, before of {change.old}: points of "
                "the two are not put together."
            )
        else:
            continue
        evidence = [Evidence(f"evaluation set of {metric}", mine, "", "the id that came with its newest points")]
        evidence.append(Evidence("evaluation set before", theirs or (change.old if change else ""), "",
                                 "the reference's" if theirs else "of this run"))  # fmt: skip
        return Judgement(
            RULE, "yes", findings.at_step, summary, since,
            (findings.tokens_at(since[0]), findings.tokens_at(since[1])), unit="nats", n=len(points), evidence=evidence,
            causes=[Cause("another evaluation set, tokenization or evaluator", "shown", "the set's id is another one")],
            next_checks=["Evaluate the earlier checkpoints on this set, or go back to the set of before."],
        )  # fmt: skip
    return None


def _first_set(view: RunView, metric: str) -> str:
    """The reference's set, where ids tell; else the run's first one: a run that came back to it is as it was."""
    theirs = view.recipe.sets.get(metric, "")
    if theirs and sets.comparable(theirs, sets.newest_set(view, metric)):
        return theirs
    declared = sorted(view.eval_sets.get(metric, ()), key=lambda s: s[0])
    return declared[0][1] if declared else ""


def _newest_jump(findings: Findings, held: HeldoutGap) -> Jump | None:
    """The newest lasting jump: the three evaluations on each side lie apart by more than the limit, and so do the
    newest evaluations from those before it."""
    n, gap = len(held), held.gap
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(gap, SIDE), axis=1)
    middle, low, high = windows[:, SIDE // 2], windows[:, 0], windows[:, -1]
    at = np.arange(SIDE, n - SIDE + 1)
    step = middle[at] - middle[at - SIDE]
    limit = np.maximum(LIMIT_NOISE * held.noise[at], LIMIT_TOLERANCE * held.tolerance.value)
    # Every evaluation after it is on its side of the middle: what reverts at once is no change.
    centre = (middle[at] + middle[at - SIDE]) / 2.0
    stays = np.where(step > 0, low[at] > centre, high[at] < centre)
    candidates = at[(np.abs(step) > limit) & stays]
    if len(candidates) == 0:
        return None
    first, i = int(candidates[0]), int(candidates[-1])
    original = float(np.median(gap[max(first - BASELINE, 0) : first]))
    if abs(float(middle[-1]) - original) < 0.5 * limit[-1]:
        return None  # put right again
    while i - 1 in candidates:  # around one jump several places pass
        i -= 1
    moved = change(gap[max(i - BASELINE, 0) : i], gap[i:][-BASELINE:], float(held.noise[i]))
    size = float(step[i - SIDE])
    if abs(moved.value) < 0.5 * abs(size) or moved.value * size < 0.0:
        return None
    train = findings.train
    before = int(held.steps[i - 1])
    return Jump(i, moved, None if train is None else train_change(train, before, before, TRAIN_BLOCKS))


def _causes(findings: Findings, steps: tuple[int, int]) -> list[Cause]:
    restarts = [s.start_step for s in findings.view.segments[1:] if steps[0] - 1 <= s.start_step <= steps[1]]
    causes = [Cause("another evaluation set, tokenization or evaluator", "likely", "held-out moved at once and alone")]
    if restarts:
        because = f"the trainer was started again at step {restarts[-1]:,}"
        causes.insert(0, Cause("the evaluation changed with that restart", "likely", because))
    return causes
