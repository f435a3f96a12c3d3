"""Limits that a run must keep, asked of its report: each holds, fails, or cannot be told. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from service.reports import words
from service.reports.beside import TRAIN, Compared, Comparison
from service.reports.document import Judged, VerdictPart
from service.reports.standing import Z95, standing

Answer = Literal["holds", "fails", "cannot tell"]
FRESH_BLOCKS = 2  # blocks behind the newest step after which a gap is of an earlier time
FRESH_EVALUATIONS = 2.5  # usual distances of evaluations, likewise
SINGLE_LEVEL = 0.01  # chance that any of the single tasks is wrongly said to lie outside
GOOD = ("matching", "consistent")
_ANSWER_OF: dict[str, Answer] = {"inside": "holds", "outside": "fails", "cannot tell": "cannot tell"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What is asked; None is not. `gap` and `heldout` in nats, `tasks` in accuracy, of the mean over the tasks;
    `verdict` is the least one that is accepted; `at` is a step, None the newest."""

    gap: float | None = None
    heldout: float | None = None
    tasks: float | None = None
    no_repeats: bool = False
    verdict: Literal["matching", "consistent"] | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One limit. `measured` with its 95 % `interval` in `unit`, against `limit`; `step` is where it was measured."""

    check: str
    answer: Answer
    summary: str
    measured: float | None = None
    interval: tuple[float, float] | None = None
    limit: float | None = None
    unit: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What the limits are held against. `step` is the newest of the run, None before its first data."""

    step: int | None
    found: Comparison
    verdict: VerdictPart
    repeats: Judged | None


def check(known: Known, limits: Limits) -> list[Outcome]:
    """Every limit's outcome, in the order in which they are asked."""
    made: list[Outcome] = []
    if limits.verdict is not None:
        made.append(_verdict(known.verdict, limits.verdict))
    if limits.gap is not None:
        made.append(_gap(known, limits.gap, limits.at))
    if limits.heldout is not None:
        made += _heldout(known, limits.heldout, limits.at)
    if limits.tasks is not None:
        made += _tasks(known, limits.tasks, limits.at)
    if limits.no_repeats:
        made.append(_repeats(known, limits.at))
    return made


def overall(outcomes: Sequence[Outcome]) -> Answer:
    """Fails where one does, else cannot be told where one cannot, else holds."""
    answers = {outcome.answer for outcome in outcomes}
    return "fails" if "fails" in answers else "cannot tell" if "cannot tell" in answers else "holds"


def _verdict(verdict: VerdictPart, least: str) -> Outcome:
    name = "verdict"
    if verdict.state is None:
        return Outcome(name, "cannot tell", f"not judged: {verdict.note}")
    told = f"{verdict.state}: {verdict.because}"
    if verdict.state in ("drifting", "diverged"):
        return Outcome(name, "fails", told, step=verdict.at_step)
    if not verdict.current:
        return Outcome(name, "cannot tell", f"{verdict.state}, but: {verdict.note}", step=verdict.at_step)
    if verdict.state not in GOOD:
        return Outcome(name, "cannot tell", told, step=verdict.at_step)
    if GOOD.index(verdict.state) > GOOD.index(least):
        # Identity that is not shown is not refuted either.
        return Outcome(name, "cannot tell", f"{told} Asked for: {least}.", step=verdict.at_step)
    return Outcome(name, "holds", told, step=verdict.at_step)


def _gap(known: Known, limit: float, at: int | None) -> Outcome:
    name, one = f"gap of {TRAIN}", known.found.train
    missing = _missing(known, at)
    if missing:
        return Outcome(name, "cannot tell", missing, limit=limit, unit="nats")
    if one is None:
        return Outcome(name, "cannot tell", "no complete block beside the reference", limit=limit, unit="nats")
    return _of(name, one, limit, "nats", _here(known, at), FRESH_BLOCKS * (one.window or 1), "block")


def _heldout(known: Known, limit: float, at: int | None) -> list[Outcome]:
    missing = _missing(known, at)
    if missing or not known.found.heldout:
        told = missing or "the run has no held-out loss"
        return [Outcome("held-out loss", "cannot tell", told, limit=limit, unit="nats")]
    return [_evaluated(one.metric, one, limit, "nats", _here(known, at)) for one in known.found.heldout]


def _tasks(known: Known, limit: float, at: int | None) -> list[Outcome]:
    """The mean over the tasks; and each task that surely lies beyond the limit times the root of their number."""
    name, unit = "mean of the tasks", "accuracy"
    missing = _missing(known, at)
    if missing:
        return [Outcome(name, "cannot tell", missing, limit=limit, unit=unit)]
    if known.found.mean is None:
        told = "the reference has no accuracies of these tasks" if known.found.tasks else "the run has no accuracies"
        return [Outcome(name, "cannot tell", told, limit=limit, unit=unit)]
    here = _here(known, at)
    made = [_evaluated(name, known.found.mean, limit, unit, here)]
    shared = [one for one in known.found.tasks if np.isfinite(one.deviation).any()]
    single = limit * math.sqrt(len(shared))
    wider = NormalDist().inv_cdf(1.0 - SINGLE_LEVEL / (2.0 * max(len(shared), 1))) / Z95
    for one in shared:
        i = _last(one, here)
        if i is None or not np.isfinite(one.deviation[i]):
            continue
        value, half = float(one.deviation[i]), float(one.half[i]) * wider
        if standing(value, half, single)[0] == "outside":
            made.append(_told(one.metric, "fails", "", value, half, single, unit, int(one.steps[i])))
    return made


def _repeats(known: Known, at: int | None) -> Outcome:
    name, one = "repeated rows", known.repeats
    if one is None:
        return Outcome(name, "cannot tell", "not judged")
    answers: dict[str, Answer] = {"no": "holds", "yes": "fails"}
    answer = answers.get(one.state, "cannot tell")
    summary = one.summary
    here = _here(known, at)
    if one.since_step is not None and here is not None and one.since_step[1] > here:
        # They began later, or perhaps later: what was read up to this step is another question.
        answer = "holds" if one.since_step[0] > here else "cannot tell"
        summary = f"none up to step {here:,}; later: {summary}" if answer == "holds" else summary
    elif answer == "holds" and here is not None and one.at_step < here:
        answer, summary = "cannot tell", f"judged up to step {one.at_step:,} only: {summary}"
    value = one.value if isinstance(one.value, int | float) else None
    limit = one.limit if isinstance(one.limit, int | float) else None
    interval = one.interval
    ends = None
    if interval is not None and isinstance(interval[0], int | float) and isinstance(interval[1], int | float):
        ends = (float(interval[0]), float(interval[1]))
    return Outcome(name, answer, summary, value, ends, limit, "share", one.at_step)


def _missing(known: Known, at: int | None) -> str:
    if known.step is None:
        return "the run has no data"
    if at is not None and known.step < at:
        return f"the run has come to step {known.step:,} only"
    return ""


def _here(known: Known, at: int | None) -> int | None:
    return known.step if at is None else at


def _evaluated(name: str, one: Compared, limit: float, unit: str, here: int | None) -> Outcome:
    usual = float(np.median(np.diff(one.steps))) if len(one.steps) > 2 else math.inf
    return _of(name, one, limit, unit, here, FRESH_EVALUATIONS * usual, "evaluation")


def _of(name: str, one: Compared, limit: float, unit: str, here: int | None, fresh: float, what: str) -> Outcome:
    """The newest value up to a step, unless it is of a much earlier time."""
    i = _last(one, here)
    if i is None:
        return Outcome(name, "cannot tell", f"no {what} up to step {here:,}", limit=limit, unit=unit)
    step, value = int(one.steps[i]), float(one.deviation[i])
    if not math.isfinite(one.values[i]):
        return Outcome(name, "fails", f"the run's value is {one.values[i]} at step {step:,}", limit=limit, unit=unit,
                       step=step)  # fmt: skip
    known, half = (None, None) if math.isnan(value) else (value, float(one.half[i]))
    stand, because = standing(known, half, limit)
    answer = _ANSWER_OF[stand]
    if known is None or half is None:
        return Outcome(name, answer, f"{because}, step {step:,}", limit=limit, unit=unit, step=step)
    if answer == "holds" and here is not None and here - step > fresh:
        answer, because = "cannot tell", f"the newest {what} that can be compared lies {here - step:,} steps back"
    return _told(name, answer, because, known, half, limit, unit, step)


def _last(one: Compared, here: int | None) -> int | None:
    i = len(one.steps) if here is None else int(np.searchsorted(one.steps, here, side="right"))
    return i - 1 if i else None


def _told(
    name: str, answer: Answer, because: str, value: float, half: float, limit: float, unit: str, step: int
) -> Outcome:
    known = math.isfinite(half)
    measured = f"{words.number(value, sign=True)}" + (f" ± {words.number(half)}" if known else "")
    beside = {"holds": "within", "fails": "beyond", "cannot tell": "against"}[answer]
    told = f"{measured} {unit}, {beside} ±{words.number(limit)}, at step {step:,}" + (f": {because}" if because else "")
    return Outcome(name, answer, told, value, (value - half, value + half) if known else None, limit, unit, step)
