"""The forms of a run's page: notes, and taking a run out of the way of lists."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from service.context import ContextDep
from service.errors import ProblemError
from service.notes.endpoints import add_note, remove_note
from service.notes.schemas import NewNote
from service.runs.endpoints import change_run
from service.runs.schemas import RunChange
from web import guard
from web.forms import Form, body_of, problem
from web.rendering import base_of

router = APIRouter(
    include_in_schema=False,
    prefix="/runs/{uuid}",
    dependencies=[Depends(guard.require_sign_in), Depends(guard.require_same_origin)],
)


@router.post("/notes")
async def note(request: Request, context: ContextDep, uuid: UUID) -> Response:
    """Write a note."""
    form = await guard.form_of(request)
    return await _done(request, uuid, lambda: add_note(context, uuid, _note(form)))


@router.post("/notes/{note_id}/remove")
async def unnote(request: Request, context: ContextDep, uuid: UUID, note_id: UUID) -> Response:
    """Take a note away."""
    return await _done(request, uuid, lambda: remove_note(context, uuid, note_id))


@router.post("/archive")
async def archive(request: Request, context: ContextDep, uuid: UUID) -> Response:
    """Archive the run."""
    return await _done(request, uuid, lambda: change_run(context, uuid, RunChange(archived=True)))


@router.post("/restore")
async def restore(request: Request, context: ContextDep, uuid: UUID) -> Response:
    """Take the run back into the list."""
    return await _done(request, uuid, lambda: change_run(context, uuid, RunChange(archived=False)))


def _note(form: Form) -> NewNote:
    step = form.get("step", "").strip().replace(",", "").replace(" ", "")
    return body_of(NewNote, {"text": form.get("text", "").strip(), "by": form.get("by", "").strip(), "step": step})


async def _done(request: Request, uuid: UUID, act: Any) -> Response:
    try:
        await run_in_threadpool(act)
    except ProblemError as error:
        return problem(request, error)
    return RedirectResponse(f"{base_of(request)}/runs/{uuid}#timeline", 303)
