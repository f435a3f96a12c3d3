"""Rule `heldout_regression`: is the held-out loss above the reference's, beyond what healthy runs show?"""

from __future__ import annotations

from typing import Literal

import numpy as np

from service.compare.medians import median
from service.detect.beyond import beyond_reference
from service.detect.drift_causes import of_higher_heldout
from service.detect.findings import Findings, current_gap
from service.detect.gaps import ALARM, MOST, OFFSET_SHARE, SD_PER_TOLERANCE, heldout_unit
from service.detect.heldout_gap import HeldoutGap
from service.detect.judgement import Cause, Evidence, Judgement, State
from service.detect.rules import evaluation_changed
from service.detect.sequential import Episode, episodes

RULE = "heldout_regression"
MIN_EVALUATIONS = 3
LONG_LIMIT = 4.0 / 3.0  # of the tolerance: a gap that stays above this is found in time
LONG_ALARM = 40.0
SHARED = 0.5  # of the held-out gap: where the train gap is more, both losses went up
WORSE = "training goes worse: optimizer, learning rate, data or a numerical fault"


def judge(findings: Findings) -> Judgement:
    """`yes` while a sequential test of the held-out gap against its tolerance says so; `cannot tell` without a shared
    held-out loss, with fewer than three evaluations, or where the evaluation itself changed."""
    held = findings.heldout_gap
    if held is None:
        return Judgement(RULE, "cannot tell", findings.at_step, _missing(findings), unit="nats")
    episode = open_now(findings, held)
    if episode is None:
        if len(held) < MIN_EVALUATIONS:
            summary = f"Cannot tell yet: {len(held)} of {MIN_EVALUATIONS} evaluations of {held.metric}."
            return _answer(findings, held, "cannot tell", summary)
        value = median(held.gap[-MIN_EVALUATIONS:])
        ended = beyond_reference(findings.view, held.metric, findings.cache)
        if ended is not None:
            summary = f"Cannot tell of what came since: {ended}; until then the gap was {value:+.4f} nats."
            return _answer(findings, held, "cannot tell", summary)
        return _answer(findings, held, "no", f"{held.metric} is {value:+.4f} nats from {_name(findings)}: no worse.")
    if findings.said(evaluation_changed.judge).state == "yes":
        summary = f"Cannot tell: {held.metric} is higher because the evaluation changed."
        return _answer(findings, held, "cannot tell", summary)
    since = len(held) - episode.onset
    if since < MIN_EVALUATIONS and not _train_rose(findings, held):
        summary = (
            f"Cannot tell yet: {held.metric} rose at once and the train loss did not; {since} of {MIN_EVALUATIONS} "
            "evaluations that tell a regression from a changed evaluation."
        )
        return _answer(findings, held, "cannot tell", summary)
    return _regressed(findings, held, episode)


def open_now(findings: Findings, held: HeldoutGap, side: Literal["above", "below"] = "above") -> Episode | None:
    """`open_episode`, charted anew where the held-out gap is another one."""
    return findings.cache.unchanged((RULE, side), (held,), lambda: open_episode(held, side))


def open_episode(held: HeldoutGap, side: Literal["above", "below"] = "above") -> Episode | None:
    """The open excursion beyond the tolerance on that side, a quick one first. One evaluation alone opens none."""
    limit, tolerance, gap = SD_PER_TOLERANCE * held.sd, held.tolerance, held.gap if side == "above" else -held.gap
    if not tolerance.runs:
        limit = limit + OFFSET_SHARE * tolerance.value
    found = episodes(np.minimum((gap - limit) / held.sd, MOST), ALARM)
    if found and found[-1].end is None:
        return found[-1]
    if not tolerance.runs:
        found = episodes(np.minimum((gap - LONG_LIMIT * tolerance.value) / held.sd, MOST), LONG_ALARM)
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
        answer.limit_source, answer.n, answer.evidence, _causes(findings, held),
        ["See whether the train loss sank at the same time: a model that memorizes gets worse on held-out text.",
         "Check that the evaluated weights, data and code are those of the reference's evaluation.",
         "Compare learning rate and batch size with the reference's recipe."],
    )  # fmt: skip


def _causes(findings: Findings, held: HeldoutGap) -> list[Cause]:
    train, gap = findings.train, median(held.gap[-MIN_EVALUATIONS:])
    side = train.open.side if train is not None and train.open is not None else None
    if side == "below":
        because = "the train loss sank below the reference's at the same time"
        return [Cause("memorization: the model learns its rows, not the text", "likely", because)]
    rate = of_higher_heldout(findings, gap, held.tolerance.value)
    causes = [rate] if rate is not None else []
    if side == "above":
        because = "the train loss is above the reference's as well"
        return [*causes, Cause(WORSE, "likely", because)]
    now = current_gap(train)
    if now is not None and _train_rose(findings, held):
        because = f"the train loss lies {now[0]:+.3f} nats above as well, within its tolerance"
        return [*causes, Cause(WORSE, "possible" if causes else "likely", because)]
    because = "the train loss did not move" if now is not None else "the train loss cannot be compared"
    return [*causes, Cause("another mix of data, or an evaluation of other weights", "possible", because)]


def _train_rose(findings: Findings, held: HeldoutGap) -> bool:
    """Whether the train gap is more than half of the held-out one."""
    now = findings.gap_now
    return now is not None and now[0] > SHARED * median(held.gap[-MIN_EVALUATIONS:])


def _answer(findings: Findings, held: HeldoutGap, state: State, summary: str) -> Judgement:
    newest = held.gap[-MIN_EVALUATIONS:]
    value = median(newest)
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
    unit = heldout_unit(findings.view, findings.cache)
    if unit is not None:
        return f"Cannot tell: {unit}."
    has = any(m.startswith("heldout/") for m in findings.view.metrics)
    return (
        "Cannot tell: the reference has no such held-out loss." if has else "Cannot tell: the run has no held-out loss."
    )


def _name(findings: Findings) -> str:
    return findings.view.reference_name or "the reference"
