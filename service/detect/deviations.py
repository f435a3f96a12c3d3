"""Declared deviations: what of a gap a known difference explains, within its budget and its span, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .inputs import Deviation, Floats, Ints
from .judgement import Evidence, Judgement

RESTS_ON = "rests on a declared deviation"
EXCEEDED = "declared deviation exceeded"
EXPIRED = "declared deviation expired"
MEAN = "downstream/mean/accuracy"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What declared deviations explain of a gap, (n,) each: `low` ≤ 0 ≤ `high`, zero where nothing is declared."""

    low: Floats
    high: Floats

    def unexplained(self, gap: Floats) -> Floats:
        """The gap (n,) less what is explained of it: its distance outside low … high, with its sign; NaN stays NaN."""
        return gap - np.clip(gap, self.low, self.high)


def allowance(
    deviations: Sequence[Deviation], metric: str, first_step: Ints, last_step: Ints, tokens: Floats
) -> Allowance | None:
    """What is explained of `metric`'s gap at spans of steps `first_step` … `last_step` that end at `tokens` (n,).

    Budgets of one sign add up; those of opposite signs widen the band on both sides. A span that touches a deviation's
    is inside it. None where no deviation has a budget for this metric."""
    concerned = [(d, d.budgets[metric]) for d in deviations if d.budgets.get(metric)]
    if not concerned:
        return None
    low, high = np.zeros(len(tokens)), np.zeros(len(tokens))
    for deviation, budget in concerned:
        part = np.where(_in_force(deviation, first_step, last_step, tokens), budget, 0.0)
        low, high = low + np.minimum(part, 0.0), high + np.maximum(part, 0.0)
    return Allowance(low, high)


def mean_budgets(deviations: Sequence[Deviation], metrics: Sequence[str]) -> list[Deviation]:
    """The same with what the budgets of `metrics` come to in their mean added to the budget of the mean itself."""
    share = 1.0 / max(len(metrics), 1)
    return [
        replace(d, budgets={MEAN: d.budgets.get(MEAN, 0.0) + share * sum(d.budgets.get(m, 0.0) for m in metrics)})
        for d in deviations
    ]


def _in_force(deviation: Deviation, first_step: Ints, last_step: Ints, tokens: Floats) -> np.ndarray:
    inside = last_step >= deviation.from_step
    if deviation.end_step is not None:
        inside &= first_step <= deviation.end_step
    if deviation.from_tokens is not None:
        inside &= tokens >= deviation.from_tokens
    if deviation.end_tokens is not None:
        inside &= tokens <= deviation.end_tokens
    return inside


def standing(deviation: Deviation, step: int, tokens: float) -> str:
    """Where a deviation stands at a step: "in force", "not begun" or "ended"."""
    at = np.array([step])
    if _in_force(deviation, at, at, np.array([tokens]))[0]:
        return "in force"
    begun = step >= deviation.from_step and not tokens < (deviation.from_tokens or 0.0)
    return "ended" if begun else "not begun"


@dataclass(frozen=True, slots=True)
class Moment:
    """The newest step and its tokens."""

    step: int
    tokens: float


@dataclass(slots=True)
class _Standing:
    """Deviations with a budget for the metrics of one rule: in force now, and those whose span is over."""

    now: list[Deviation] = field(default_factory=list[Deviation])
    over: list[Deviation] = field(default_factory=list[Deviation])


def explained(
    said: Sequence[Judgement],
    without: Sequence[Judgement],
    deviations: Sequence[Deviation],
    metrics_of: Mapping[str, Sequence[str]],
    now: Moment,
) -> list[Judgement]:
    """The answers `said` with what declared deviations have to do with them; `without` are those with none declared.

    An answer that would be "yes" without them rests on those in force. One that is "yes" in spite of them says which
    are exceeded and which have ended. `metrics_of` gives the metrics a rule looks at, by prefix."""
    bare = {judgement.rule: judgement for judgement in without}
    return [_told(j, bare[j.rule], _standing(deviations, metrics_of.get(j.rule, ()), now)) for j in said]


def _told(said: Judgement, bare: Judgement, standing: _Standing) -> Judgement:
    touched = said != bare
    if touched and said.value is not None and said.value != bare.value:
        extra = Evidence(
            "value without declared deviations", bare.value, said.unit,
            "as measured; what declared deviations explain is left out of what is judged",
        )  # fmt: skip
        said = replace(said, evidence=[*said.evidence, extra])
    if said.state != "yes":
        if bare.state != "yes" or not standing.now:
            return said
        names = _names(standing.now)
        extra = [
            Evidence(RESTS_ON, describe(d), "", f"without it the answer would be yes: {bare.summary}")
            for d in standing.now
        ]
        left_out = f"Left out what the declared {names} explains: " if touched else ""
        summary = f"{left_out}{said.summary} It rests on that; without: {bare.summary}"
        return replace(said, summary=summary, evidence=[*said.evidence, *extra])
    exceeded = standing.now if touched else []
    extra = [
        Evidence(EXCEEDED, describe(d), "", "it explains a part within its budget; what is judged is the rest")
        for d in exceeded
    ]
    extra += [
        Evidence(EXPIRED, describe(d), "", "its span is over: nothing is explained by it any more")
        for d in standing.over
    ]
    told = [f"This is beyond the budget of the declared {_names(exceeded)}."] if exceeded else []
    if standing.over:
        told.append(f"Expired: the declared {_names(standing.over)}.")
    if not told:
        return said
    summary = " ".join([said.summary, *told])
    return replace(said, summary=summary, evidence=[*said.evidence, *extra])


def _standing(deviations: Sequence[Deviation], metrics: Sequence[str], now: Moment) -> _Standing:
    found = _Standing()
    for deviation in deviations:
        if not any(budget and name.startswith(tuple(metrics)) for name, budget in deviation.budgets.items()):
            continue
        where = standing(deviation, now.step, now.tokens)
        if where != "not begun":
            (found.now if where == "in force" else found.over).append(deviation)
    return found


def describe(deviation: Deviation) -> str:
    """One deviation in words: what, budgets, span, who."""
    budgets = ", ".join(f"{budget:+g} of {metric}" for metric, budget in deviation.budgets.items())
    start = f"step {deviation.from_step:,}"
    if deviation.from_tokens is not None:
        start += f" and {deviation.from_tokens:,.0f} tokens"
    ends = [f"step {deviation.end_step:,}"] if deviation.end_step is not None else []
    ends += [f"{deviation.end_tokens:,.0f} tokens"] if deviation.end_tokens is not None else []
    end = f"to {' or '.join(ends)}" if ends else "on"
    by = f", declared by {deviation.by}" if deviation.by else ""
    return f"{deviation.text} ({deviation.item}): {budgets}; from {start} {end}{by}"


def rest_on(judgements: Iterable[Judgement]) -> list[str]:
    """The deviations that answers rest on, each once, in words."""
    found = [str(e.value) for j in judgements for e in j.evidence if e.name == RESTS_ON]
    return list(dict.fromkeys(found))


def _names(deviations: Sequence[Deviation]) -> str:
    word = "deviation" if len(deviations) == 1 else "deviations"
    return f"{word} " + ", ".join(f"“{d.text}”" for d in deviations)
