"""What was found about a run: every rule's answer, the verdict, and the gap to the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from service.alerts.repository import AlertRepository
from service.context import ContextDep
from service.database.engine import reading
from service.database.models import Run, VerdictRow
from service.errors import NotFoundError
from service.judgements.gap import read_gap
from service.judgements.repository import JudgementRepository
from service.judgements.schemas import (
    GapAnswer,
    JudgementAnswer,
    JudgementList,
    RunVerdict,
    gap_answer,
)
from service.judgements.view import TRAIN, UnknownReferenceError
from service.runs.endpoints import unknown_run
from service.runs.repository import RunRepository

router = APIRouter(tags=["judgements"])


@router.get("/runs/{run_id}/judgements", operation_id="list_judgements")
def list_judgements(context: ContextDep, run_id: UUID) -> JudgementList:
    """The latest answer of every rule, with its numbers, evidence and causes."""
    with reading(context.engine) as session:
        rows = JudgementRepository(session).of_run(_run(session, run_id).id)
        items = [
            JudgementAnswer(
                rule=row.rule,
                family=row.family,
                state=row.state,
                at_step=row.at_step,
                decided_at=row.decided_at,
                judgement=row.body,
            )
            for row in rows
        ]
        return JudgementList(run=run_id, items=items)


@router.get("/runs/{run_id}/verdict", operation_id="read_verdict")
def read_verdict(context: ContextDep, run_id: UUID) -> RunVerdict:
    """Is this run still the published run, as far as can be told now?"""
    with reading(context.engine) as session:
        run = _run(session, run_id)
        row = JudgementRepository(session).verdict(run.id)
        body = row.body if row else {}
        titles = [alert.title for alert in AlertRepository(session).open_of(run.id)]
        return RunVerdict(
            run=run_id,
            text=in_one_line(run, row, titles),
            state=row.state if row else None,
            because=body.get("because"),
            reference=body.get("reference"),
            version=body.get("version"),
            decided_at=row.decided_at if row else None,
        )


@router.get("/runs/{run_id}/gap", operation_id="read_gap")
def read_run_gap(
    context: ContextDep,
    run_id: UUID,
    metric: Annotated[str, Query(max_length=256)] = TRAIN,
    points: Annotated[int, Query(ge=1, le=10_000, description="At most this many blocks.")] = 1000,
) -> GapAnswer:
    """Run minus reference at equal tokens: robust block means for what is logged every step, else each evaluation."""
    with reading(context.engine) as session:
        run = _run(session, run_id)
        try:
            gap, reference = read_gap(session, run, metric, points)
        except UnknownReferenceError as error:
            raise NotFoundError(f"There is no gap: {error}.") from error
        return gap_answer(run_id, metric, gap, reference)


def in_one_line(run: Run, row: VerdictRow | None, alerts: Sequence[str]) -> str:
    """A verdict as a chat shows it: which run, what it is, against what, why, and the open alerts."""
    name = f"{run.name} ({run.stage})"
    if row is None:
        said = f"{name} has not been judged yet."
    else:
        against = f" against {row.body.get('reference') or ''} {row.body.get('version') or ''}".rstrip()
        because = str(row.body.get("because") or "").strip().rstrip(".")
        said = f"{name}: {row.state}{against}" + (f": {because}." if because else ".")
    if alerts:
        said += f" {len(alerts)} open alert{'s' * (len(alerts) > 1)}: {'; '.join(alerts)}."
    return " ".join(said.split())


def _run(session: Session, uuid: UUID) -> Run:
    run = RunRepository(session).by_uuid(uuid)
    if run is None:
        raise unknown_run(uuid)
    return run
