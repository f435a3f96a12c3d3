"""What the API says about judgements, verdicts and gaps."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel

from service.judgements.gap import Gap
from service.judgements.view import ReferenceView
from service.runs.fields import Number, Time


class JudgementAnswer(BaseModel):
    """One rule's latest answer. `judgement` is its JSON, the same as in alerts and messages."""

    rule: str
    family: str
    state: str
    at_step: int
    decided_at: Time
    judgement: dict[str, Any]


class JudgementList(BaseModel):
    """The latest answer of every rule, by rule; empty before the first judgement."""

    run: UUID
    items: list[JudgementAnswer]


class RunVerdict(BaseModel):
    """A run's verdict; `state` is null before the first. `reference` and `version` say what it was reached against.

    `text` says all of it in one line, for a chat."""

    run: UUID
    text: str
    state: str | None
    because: str | None
    reference: str | None
    version: str | None
    decided_at: Time | None


class ToleranceAnswer(BaseModel):
    """How far a healthy reproduction may wander, and where that number comes from."""

    value: Number
    source: str
    runs: int


class NormalityAnswer(BaseModel):
    """How the newest gap stands among healthy pairs: the percentage of their gaps that are nearer to zero.

    `comparable` is false where no pair of the run's scale and difference is known and these are the nearest."""

    percentile: Number
    pairs: int
    names: list[str]
    largest: Number
    comparable: bool
    source: str


class GapAnswer(BaseModel):
    """Run minus reference at equal tokens, in columns: one entry per block, or per evaluation (`window_steps` null).

    `low` and `high` bound the 95 % interval, "NaN" where the noise is not known.
    """

    run: UUID
    metric: str
    reference: str
    version: str
    window_steps: int | None
    tolerance: ToleranceAnswer | None
    normality: NormalityAnswer | None
    first_step: list[int]
    last_step: list[int]
    first_tokens: list[Number]
    last_tokens: list[Number]
    gap: list[Number]
    low: list[Number]
    high: list[Number]
    n: list[int]


def gap_answer(run: UUID, metric: str, gap: Gap, reference: ReferenceView) -> GapAnswer:
    """A gap as the API gives it."""
    tolerance = gap.tolerance
    return GapAnswer(
        run=run,
        metric=metric,
        reference=reference.slug,
        version=reference.version,
        window_steps=gap.window_steps,
        tolerance=ToleranceAnswer(value=tolerance.value, source=tolerance.source, runs=tolerance.runs)
        if tolerance
        else None,
        normality=NormalityAnswer(
            percentile=gap.normality.percentile,
            pairs=gap.normality.pairs,
            names=list(gap.normality.names),
            largest=gap.normality.largest,
            comparable=gap.normality.comparable,
            source=gap.normality.source,
        )
        if gap.normality
        else None,
        first_step=gap.first_step.tolist(),
        last_step=gap.last_step.tolist(),
        first_tokens=gap.first_tokens.tolist(),
        last_tokens=gap.last_tokens.tolist(),
        gap=gap.gap.tolist(),
        low=gap.low.tolist(),
        high=gap.high.tolist(),
        n=gap.n.tolist(),
    )
