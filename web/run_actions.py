"""The forms of a run's page: notes, and taking a run out of the way of lists."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from service.context import ContextDep
from service.errors import InvalidError, ProblemError
from service.notes.endpoints import add_note, remove_note
from service.notes.schemas import NewNote
from service.runs.endpoints import change_run
from service.runs.schemas import RunChange
from web import guard, static_files
from web.content.run import run_page
from web.forms import Form, body_of, problem, refused
from web.rendering import base_of, render

router = APIRouter(
    include_in_schema=False,
    prefix="/runs/{uuid}",
    dependencies=[Depends(guard.require_sign_in), Depends(guard.require_same_origin)],
)


@router.post("/notes")
async def note(request: Request, context: ContextDep, uuid: UUID) -> Response:
    """Write a note."""
    form = await guard.form_of(request)

    def act() -> Response:
        try:
            add_note(context, uuid, _note(form))
        except InvalidError as error:
            filled = refused(form, error, ("text", "step", "by"))
            page, home = run_page(context, uuid), f"/runs/{uuid}"
            return render(
                request, "run.html", status=error.status, run=page, axis="tokens", form=filled, home=home,
                plotly=static_files.plotly_path(),
            )  # fmt: skip
        return _back(request, uuid)

    try:
        return await run_in_threadpool(act)
    except ProblemError as error:
        return problem(request, error)


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
    return _back(request, uuid)


def _back(request: Request, uuid: UUID) -> Response:
    return RedirectResponse(f"{base_of(request)}/runs/{uuid}#timeline", 303)
