"""Declared deviations of a run: declaring one, ending it, and their history."""

from __future__ import annotations

import time
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from service.context import ContextDep
from service.database.engine import reading, writing
from service.database.models import DeclaredDeviation, Run
from service.detect.deviations import standing
from service.deviations.repository import DeviationRepository
from service.deviations.schemas import (
    DeviationAnswer,
    DeviationEnd,
    DeviationList,
    NewDeviation,
    deviation_answer,
    deviation_body,
)
from service.errors import ConflictError, NotFoundError, field_error
from service.rules.endpoints import Cursor, Limit, history
from service.rules.repository import SettingRepository
from service.rules.schemas import ChangePage
from service.rules.scopes import place_of_run, publish
from service.runs.repository import RunRepository

MOST = 200  # deviations of one run

router = APIRouter(tags=["deviations"])


@router.get("/runs/{run_id}/deviations", operation_id="list_deviations")
def list_deviations(context: ContextDep, run_id: UUID) -> DeviationList:
    """The known differences that were declared for a run."""
    with reading(context.engine) as session:
        run = _run(session, run_id)
        return DeviationList(run=run_id, items=_answers(session, run, DeviationRepository(session).of_run(run.id)))


@router.get("/runs/{run_id}/deviations/history", operation_id="list_deviation_changes")
def list_deviation_changes(
    context: ContextDep,
    run_id: UUID,
    deviation: Annotated[UUID | None, Query(description="Only this one.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> ChangePage:
    """Every change of a run's deviations, the newest first."""
    with reading(context.engine) as session:
        subject = None if deviation is None else str(deviation)
        return history(session, place_of_run(session, run_id), "deviation", subject, cursor, limit)


@router.post("/runs/{run_id}/deviations", operation_id="declare_deviation", status_code=201)
def declare_deviation(context: ContextDep, run_id: UUID, body: NewDeviation) -> DeviationAnswer:
    """Declare a known difference; within its budget and span it explains a gap, beyond it the rules alarm as before."""
    wrong = body.wrong()
    if wrong is not None:
        raise field_error(*wrong)
    with writing(context.engine) as session:
        place = place_of_run(session, run_id)
        run, settings = _run(session, run_id), SettingRepository(session)
        settings.lock(place.scope)
        if len(DeviationRepository(session).of_run(run.id)) >= MOST:
            raise ConflictError(f"Run {run.name} has {MOST} deviations; so many differences are another experiment.")
        now = time.time()
        row = DeclaredDeviation(
            uuid=uuid4(),
            run_id=run.id,
            description=body.text,
            item=body.item,
            budgets=body.budgets,
            from_step=body.from_step,
            from_tokens=body.from_tokens,
            end_step=body.end_step,
            end_tokens=body.end_tokens,
            end_at=None if body.end_at is None else body.end_at.timestamp(),
            declared_by=body.by,
            declared_at=now,
        )
        session.add(row)
        session.flush()
        settings.record(
            place.scope, "deviation", str(row.uuid), by=body.by, reason=body.text, at=now, old=None,
            new=deviation_body(row),
        )  # fmt: skip
        answer = _answers(session, run, [row])[0]
    publish(context, place)
    return answer


@router.post("/runs/{run_id}/deviations/{deviation_id}/end", operation_id="end_deviation")
def end_deviation(context: ContextDep, run_id: UUID, deviation_id: UUID, body: DeviationEnd) -> DeviationAnswer:
    """End a deviation at a step, by default the run's newest: from the next one on it explains nothing."""
    with writing(context.engine) as session:
        place = place_of_run(session, run_id)
        run, settings = _run(session, run_id), SettingRepository(session)
        settings.lock(place.scope)
        row = DeviationRepository(session).one(run.id, deviation_id)
        if row is None:
            raise NotFoundError(f"Run {run.name} has no deviation {deviation_id}.")
        state = RunRepository(session).state(run.id)
        step = body.end_step if body.end_step is not None else (state.last_step or 0) if state is not None else 0
        if row.end_step is not None and row.end_step <= step:
            raise ConflictError(f"The deviation ends at step {row.end_step:,} already; it can only end earlier.")
        old, now = deviation_body(row), time.time()
        row.end_step = step
        session.flush()
        settings.record(
            place.scope, "deviation", str(row.uuid), by=body.by, reason=body.reason, at=now, old=old,
            new=deviation_body(row),
        )  # fmt: skip
        answer = _answers(session, run, [row])[0]
    publish(context, place)
    return answer


def _run(session: Session, run_id: UUID) -> Run:
    run = place_of_run(session, run_id).run
    assert run is not None
    return run


def _answers(session: Session, run: Run, rows: list[DeclaredDeviation]) -> list[DeviationAnswer]:
    state = RunRepository(session).state(run.id)
    step = (state.last_step or 0) if state is not None else 0
    tokens = run.token_offset + (state.last_tokens or 0.0) if state is not None else run.token_offset
    wanted = {row.id for row in rows}
    every = zip(DeviationRepository(session).of_run(run.id), DeviationRepository(session).judged(run), strict=True)
    return [deviation_answer(row, standing(seen, step, tokens)) for row, seen in every if row.id in wanted]
