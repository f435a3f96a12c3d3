"""The starts of a run: hardware, changes and utilization."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from service.context import ContextDep
from service.database.engine import reading
from service.hardware.answers import segment_table
from service.hardware.schemas import SegmentTable
from service.runs.endpoints import unknown_run
from service.runs.repository import RunRepository

router = APIRouter(tags=["runs"])


@router.get("/runs/{run_id}/segments", operation_id="list_segments")
def list_segments(context: ContextDep, run_id: UUID) -> SegmentTable:
    """Every start of a run in order of launch: what it ran on, what is not as in the start before, how fast it trained,
    and MFU by three named formulas."""
    with reading(context.engine) as session:
        run = RunRepository(session).by_uuid(run_id)
        if run is None:
            raise unknown_run(run_id)
        return segment_table(session, run)
