"""What a run has really read, as far as its fingerprints tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from sqlalchemy.orm import Session

from service.context import ContextDep
from service.database.engine import reading
from service.database.models import Run
from service.detect.inputs import RunView
from service.detect.rows import find
from service.fingerprints.repository import FingerprintRepository
from service.fingerprints.schemas import RepeatPattern, RowAudit, RunAudit
from service.judgements.beside import declared_data, trainer_starts
from service.rules.effective import settings_of
from service.rules.reading import settings_in_force
from service.runs.endpoints import unknown_run
from service.runs.repository import RunRepository

router = APIRouter(tags=["data"])


@router.get("/runs/{run_id}/audit", operation_id="read_audit")
def read_audit(context: ContextDep, run_id: UUID) -> RunAudit:
    """How many of the rows that the run has read were repeats, since when, and how much of its data it has seen."""
    with reading(context.engine) as session:
        run = RunRepository(session).by_uuid(run_id)
        if run is None:
            raise unknown_run(run_id)
        return RunAudit(run=run_id, rows=_rows(session, run))


def _rows(session: Session, run: Run) -> RowAudit | None:
    rows = FingerprintRepository(session).rows(run.id)
    launches = RunRepository(session).live_segments(run.id)
    config: Mapping[str, Any] = next(
        (launch.config for launch in reversed(launches) if launch.kind != "evaluator"), dict[str, Any]()
    )
    data = declared_data(run.data, config)
    starts = trainer_starts(launches, rows)
    settings = settings_of(settings_in_force(session, run))
    found = find(RunView({}, {}, {}, starts, rows=rows, data=data, settings=settings))
    if found is None or rows is None:
        return None
    pattern, seen = found.pattern, rows.seen_steps
    return RowAudit(
        sample=found.sample,
        readings=found.sampled,
        distinct=found.distinct,
        repeats=found.repeats,
        planned=found.legal,
        share=found.share,
        low=found.interval[0],
        high=found.interval[1],
        natural=found.natural,
        natural_source=found.natural_source,
        rows_read=found.rows_read,
        distinct_rows=found.distinct_rows,
        declared_rows=data.rows if data else None,
        declared_epochs=data.epochs if data else None,
        coverage=min(found.distinct_rows / data.rows, 1.0) if data else None,
        hosts=found.hosts,
        steps=len(seen),
        first_step=int(seen[0]) if len(seen) else None,
        last_step=int(seen[-1]) if len(seen) else None,
        onset=found.onset,
        pattern=RepeatPattern(
            lag=pattern.lag,
            lag_share=pattern.lag_share,
            same_step=pattern.same_step,
            own_host=pattern.own_host,
            new_share=pattern.new_share,
            copies=pattern.copies,
        )
        if pattern
        else None,
    )
