"""What the API says about checks. A report has a schema of its own: `service.reports.document`."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel

from service.reports.check import Outcome, overall
from service.runs.fields import Number


class OutcomeAnswer(BaseModel):
    """One limit: "holds", "fails" or "cannot tell"; `measured` with its 95 % interval against `limit`, all in `unit`,
    at `step`."""

    check: str
    answer: str
    summary: str
    measured: Number | None
    low: Number | None
    high: Number | None
    limit: Number | None
    unit: str
    step: int | None


class CheckAnswer(BaseModel):
    """All limits: it fails where one does, and cannot be told where one cannot and none fails."""

    run: UUID
    answer: str
    outcomes: list[OutcomeAnswer]


def check_answer(run: UUID, outcomes: list[Outcome]) -> CheckAnswer:
    """Outcomes as the API gives them."""
    return CheckAnswer(
        run=run,
        answer=overall(outcomes),
        outcomes=[
            OutcomeAnswer(
                check=one.check, answer=one.answer, summary=one.summary, measured=one.measured,
                low=None if one.interval is None else one.interval[0],
                high=None if one.interval is None else one.interval[1],
                limit=one.limit, unit=one.unit, step=one.step,
            )
            for one in outcomes
        ],
    )  # fmt: skip
