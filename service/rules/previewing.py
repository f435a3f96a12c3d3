"""Trying a setting on the stored points of a run, over HTTP and from the command line."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from service.backtests.stored import NothingToJudgeError, timeline_of_run
from service.backtests.timeline import Stretch
from service.context import ContextDep
from service.database.engine import reading
from service.detect.inputs import RuleSetting
from service.errors import NotFoundError, field_error
from service.judgements.bodies import to_body
from service.judgements.view import UnknownReferenceError
from service.rules.effective import tried
from service.rules.preview import in_words, preview
from service.rules.reading import settings_in_force
from service.rules.schemas import NewSetting
from service.rules.scopes import known_rule, place_of_run

MOST_LOOKS = 1_000

router = APIRouter(tags=["rules"])


class TriedSetting(BaseModel):
    """A setting of one rule to be tried; null keeps what is in force. Looks are `every` steps apart, by default a 200th
    of the run."""

    model_config = ConfigDict(extra="forbid")

    rule: str = Field(max_length=64)
    tolerance: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    unit: Annotated[str, Field(max_length=32)] | None = None
    minimum_evidence: Annotated[int, Field(ge=1, le=2**53 - 1)] | None = None
    enabled: bool | None = None
    every: Annotated[int, Field(ge=1)] | None = None


class StretchAnswer(BaseModel):
    """A rule said yes from one look on up to another (null: to the end). `judgement` is what it said first."""

    rule: str
    from_step: int
    to_step: int | None
    judgement: dict[str, Any]


class PreviewAnswer(BaseModel):
    """What is said with the settings in force (`before`) and with the one tried (`after`); `changes` in words."""

    run: UUID
    rule: str
    every: int
    changes: list[str]
    before: list[StretchAnswer]
    after: list[StretchAnswer]


@router.post("/runs/{run_id}/rules/preview", operation_id="preview_run_rule")
def preview_run_rule(context: ContextDep, run_id: UUID, body: TriedSetting) -> PreviewAnswer:
    """What a setting would have raised, and when, on the stored points; nothing is saved. Judges the run twice."""
    rule = known_rule(body.rule)
    asked = NewSetting(
        tolerance=body.tolerance, unit=body.unit, minimum_evidence=body.minimum_evidence, enabled=body.enabled,
        by="preview", reason="preview",
    )  # fmt: skip
    wrong = asked.wrong(rule)
    if wrong is not None:
        raise field_error(*wrong)
    part = RuleSetting(
        tolerance=body.tolerance,
        tolerance_source="as tried",
        minimum=body.minimum_evidence,
        minimum_source="as tried",
        off="as tried" if body.enabled is False else "",
    )
    with reading(context.engine) as session:
        run = place_of_run(session, run_id).run
        assert run is not None
        try:
            timeline = timeline_of_run(session, run)
        except (UnknownReferenceError, NothingToJudgeError) as error:
            raise NotFoundError(f"There is nothing to judge: {error}.") from error
        settings = tried(settings_in_force(session, run), rule, part)
    span = sum(last - first + 1 for first, last in timeline.spans)
    if body.every is not None and span // body.every > MOST_LOOKS:
        raise field_error("every", f"gives more than {MOST_LOOKS:,} looks; take {span // MOST_LOOKS + 1:,} or more")
    if body.enabled:  # a rule that is off in the project is tried on
        settings[rule] = RuleSetting(
            settings[rule].tolerance, settings[rule].tolerance_source, settings[rule].minimum,
            settings[rule].minimum_source,
        )  # fmt: skip
    found = preview(timeline, settings, body.every)
    return PreviewAnswer(
        run=run_id,
        rule=rule,
        every=found.every,
        changes=in_words(found),
        before=[answer(s) for s in found.before],
        after=[answer(s) for s in found.after],
    )


def answer(found: Stretch) -> StretchAnswer:
    """A stretch as the API says it."""
    return StretchAnswer(
        rule=found.rule, from_step=found.from_step, to_step=found.to_step, judgement=to_body(found.first)
    )
