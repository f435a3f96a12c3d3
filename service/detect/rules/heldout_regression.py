"""Rule `heldout_regression`: is the held-out loss above the reference's, beyond what healthy runs show?"""

from __future__ import annotations

import numpy as np

from service.detect.findings import Findings
from service.detect.gaps import ALARM, MOST, OFFSET_SHARE, SD_PER_TOLERANCE
from service.detect.heldout_gap import HeldoutGap
from service.detect.judgement import Cause, Evidence, Judgement, State
from service.detect.rules import evaluation_changed
from service.detect.sequential import Episode, episodes

RULE = "heldout_regression"
MIN_EVALUATIONS = 3
LONG_LIMIT = 4.0 / 3.0  # of the tolerance: a gap that stays above this is found in time
LONG_ALARM = 40.0


def judge(findings: Findings) -> Judgement:
    """`yes` while a sequential test of the held-out gap against its tolerance says so; `cannot tell` without a shared
    held-out loss, with fewer than three evaluations, or where the evaluation itself changed."""
    held = findings.heldout_gap
    if held is None:
        return Judgement(RULE, "cannot tell", findings.at_step, _missing(findings), unit="nats")
    episode = open_episode(held)
    if episode is None:
        if len(held) < MIN_EVALUATIONS:
            summary = f"Cannot tell yet: {len(held)} of {MIN_EVALUATIONS} evaluations of {held.metric}."
            return _answer(findings, held, "cannot tell", summary)
        value = float(np.median(held.gap[-MIN_EVALUATIONS:]))
        return _answer(findings, held, "no", f"{held.metric} is {value:+.4f} nats from {_name(findings)}: no worse.")
    if evaluation_changed.judge(findings).state == "yes":
        summary = f"Cannot tell: {held.metric} is higher because the evaluation changed."
        return _answer(findings, held, "cannot tell", summary)
    return _regressed(findings, held, episode)


def open_episode(held: HeldoutGap) -> Episode | None:
    """The open excursion above the tolerance, a quick one first. One evaluation alone opens none."""
    limit, tolerance = SD_PER_TOLERANCE * held.sd, held.tolerance
    if not tolerance.runs:
        limit = limit + OFFSET_SHARE * tolerance.value
    found = episodes(np.minimum((held.gap - limit) / held.sd, MOST), ALARM)
    if found and found[-1].end is None:
        return found[-1]
    if not tolerance.runs:
        found = episodes(np.minimum((held.gap - LONG_LIMIT * tolerance.value) / held.sd, MOST), LONG_ALARM)
        if found and found[-1].end is None:
            return found[-1]
    return None


def _regressed(findings: Findings, held: HeldoutGap, episode: Episode) -> Judgement:
    before = max(episode.onset - 1, 0)
    steps = (int(held.steps[before]), int(held.steps[episode.onset]))
    tokens = (float(held.tokens[before]), float(held.tokens[episode.onset]))
    answer = _answer(findings, held, "yes", "")
    summary = (
        f"{held.metric} is {answer.value:+.3f} nats above {_name(findings)} since step {steps[0]:,} to {steps[1]:,}."
    )
    return Judgement(
        RULE, "yes", answer.at_step, summary, steps, tokens, answer.value, answer.interval, "nats", answer.limit,
        answer.limit_source, answer.n, answer.evidence, _causes(findings),
        ["See whether the train loss sank at the same time: a model that memorizes gets worse on held-out text.",
         "Check that the evaluated weights, data and code are those of the reference's evaluation.",
         "Compare learning rate and batch size with the reference's recipe."],
    )  # fmt: skip


def _causes(findings: Findings) -> list[Cause]:
    train = findings.train
    side = train.open.side if train is not None and train.open is not None else None
    if side == "below":
        because = "the train loss sank below the reference's at the same time"
        return [Cause("memorization: the model learns its rows, not the text", "likely", because)]
    if side == "above":
        because = "the train loss is above the reference's as well"
        return [Cause("training goes worse: optimizer, learning rate, data or a numerical fault", "likely", because)]
    return [Cause("another mix of data, or an evaluation of other weights", "possible", "the train loss did not move")]


def _answer(findings: Findings, held: HeldoutGap, state: State, summary: str) -> Judgement:
    newest = held.gap[-MIN_EVALUATIONS:]
    value = float(np.median(newest))
    half = 1.96 * float(np.sqrt((np.pi / 2 if len(newest) > 2 else 1.0) / len(newest)) * held.noise[-1])
    evidence = [
        *findings.evidence(),
        Evidence("held-out gap", value, "nats", f"median of the newest {len(newest)} evaluations of {held.metric}"),
        Evidence("held-out tolerance", held.tolerance.value, "nats", held.tolerance.source),
    ]
    return Judgement(
        RULE, state, findings.at_step, summary, value=value, interval=(value - half, value + half), unit="nats",
        limit=held.tolerance.value, limit_source=held.tolerance.source, n=len(held), evidence=evidence,
    )  # fmt: skip


def _missing(findings: Findings) -> str:
    has = any(m.startswith("heldout/") for m in findings.view.metrics)
    return (
        "Cannot tell: the reference has no such held-out loss." if has else "Cannot tell: the run has no held-out loss."
    )


def _name(findings: Findings) -> str:
    return findings.view.reference_name or "the reference"
