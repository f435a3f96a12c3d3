"""What now: where to restart a run that went wrong, and at what cost."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from service.context import ContextDep
from service.database.engine import reading
from service.recovery.reading import of_run
from service.recovery.schemas import RecoveryAnswer
from service.runs.endpoints import unknown_run
from service.runs.repository import RunRepository

router = APIRouter(tags=["recovery"])


@router.get("/runs/{run_id}/recovery", operation_id="read_recovery")
def read_recovery(context: ContextDep, run_id: UUID) -> RecoveryAnswer:
    """The last checkpoint before what is wrong began, what a restart from it costs, and how the forks fare."""
    with reading(context.engine) as session:
        run = RunRepository(session).by_uuid(run_id)
        if run is None:
            raise unknown_run(run_id)
        return of_run(session, run)
