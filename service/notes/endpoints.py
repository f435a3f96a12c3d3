"""Notes on a run: writing, reading and taking away."""

from __future__ import annotations

import time
from uuid import UUID, uuid4

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from service.context import Context, ContextDep
from service.database.engine import reading, writing
from service.database.models import Run, RunNote
from service.errors import ConflictError, NotFoundError
from service.notes.repository import NoteRepository
from service.notes.schemas import NewNote, NoteAnswer, NoteList, note_answer
from service.runs.endpoints import unknown_run
from service.runs.repository import RunRepository

MOST = 1000  # notes on one run

router = APIRouter(tags=["notes"])


@router.get("/runs/{run_id}/notes", operation_id="list_notes")
def list_notes(context: ContextDep, run_id: UUID) -> NoteList:
    """What people wrote beside a run, the newest first."""
    with reading(context.engine) as session:
        rows = NoteRepository(session).of_run(_run(session, run_id).id)
        return NoteList(run=run_id, items=[note_answer(row) for row in rows])


@router.post("/runs/{run_id}/notes", operation_id="add_note", status_code=201)
def add_note(context: ContextDep, run_id: UUID, body: NewNote) -> NoteAnswer:
    """Write something beside a run. It is shown with the run's events; nothing is judged by it."""
    with writing(context.engine) as session:
        run = _run(session, run_id)
        if NoteRepository(session).count(run.id) >= MOST:
            raise ConflictError(f"Run {run.name} has {MOST} notes; take old ones away to write more.")
        row = RunNote(uuid=uuid4(), run_id=run.id, step=body.step, written_by=body.by, text=body.text, at=time.time())
        session.add(row)
        session.flush()
        answer = note_answer(row)
    _tell(context, run_id)
    return answer


@router.delete("/runs/{run_id}/notes/{note_id}", operation_id="remove_note", status_code=204)
def remove_note(context: ContextDep, run_id: UUID, note_id: UUID) -> Response:
    """Take a note away for good."""
    with writing(context.engine) as session:
        run = _run(session, run_id)
        if not NoteRepository(session).remove(run.id, note_id):
            raise NotFoundError(f"Run {run.name} has no note {note_id}.")
    _tell(context, run_id)
    return Response(status_code=204)


def _run(session: Session, run_id: UUID) -> Run:
    run = RunRepository(session).by_uuid(run_id)
    if run is None:
        raise unknown_run(run_id)
    return run


def _tell(context: Context, run_id: UUID) -> None:
    context.broker.publish("run", {"run": str(run_id)})
