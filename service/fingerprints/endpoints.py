"""What a run has really read, as far as its fingerprints tell."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from service.context import ContextDep
from service.database.engine import reading
from service.fingerprints.answers import audit_of
from service.fingerprints.schemas import RunAudit
from service.runs.endpoints import unknown_run
from service.runs.repository import RunRepository

router = APIRouter(tags=["data"])


@router.get("/runs/{run_id}/audit", operation_id="read_audit")
def read_audit(
    context: ContextDep,
    run_id: UUID,
    against: Annotated[
        UUID | None, Query(description="the run whose rows are expected; by default the reference's")
    ] = None,
) -> RunAudit:
    """How many of the rows that the run has read were repeats, since when and from where, how much of its data it has
    seen, whether it met held-out text, and through which step it read another run's rows."""
    with reading(context.engine) as session:
        runs = RunRepository(session)
        run = runs.by_uuid(run_id)
        if run is None:
            raise unknown_run(run_id)
        other = None if against is None else runs.by_uuid(against)
        if against is not None and other is None:
            raise unknown_run(against)
        return audit_of(session, run, other)
