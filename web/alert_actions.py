"""The forms of an alert's page: each does what the API's action of the same name does, then shows the page again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from service.alerts import acting
from service.alerts.acting import Source
from service.alerts.schemas import Acknowledgement, Assignment, Comment, Mute
from service.context import Context, ContextDep
from service.errors import ConflictError, InvalidError, NotFoundError, ProblemError, field_error
from web import guard, static_files
from web.content.alert import alert_page
from web.forms import Form, problem, refused
from web.rendering import base_of, render

router = APIRouter(include_in_schema=False, dependencies=[Depends(guard.require_sign_in)])
HOURS = {"1", "4", "24", "72"}


def _mute(context: Context, source: Source, alert: UUID, form: Form) -> None:
    if form.get("hours") not in HOURS:
        raise field_error("hours", "choose how long")
    said = _said(form)
    mute = Mute(by=said["by"], note=said["note"], minutes=60.0 * float(form["hours"]))
    acting.mute_alert(context, source, alert, mute)


def _assign(context: Context, source: Source, alert: UUID, form: Form) -> None:
    assignee = form.get("assignee", "").strip()[:256] or None
    acting.assign_alert(context, source, alert, Assignment(**_said(form), assignee=assignee))


def _comment(context: Context, source: Source, alert: UUID, form: Form) -> None:
    said = _said(form)
    if not said["note"]:
        raise field_error("note", "write something")
    acting.comment_alert(context, source, alert, Comment(**said))


def _plain(action: Callable[[Context, Source, UUID, Acknowledgement], object]) -> Callable[..., None]:
    def act(context: Context, source: Source, alert: UUID, form: Form) -> None:
        action(context, source, alert, Acknowledgement(**_said(form)))

    return act


ACTIONS: Mapping[str, Callable[[Context, Source, UUID, Form], None]] = {
    "acknowledge": _plain(acting.acknowledge_alert),
    "unmute": _plain(acting.unmute_alert),
    "resolve": _plain(acting.resolve_alert),
    "mute": _mute,
    "assign": _assign,
    "comment": _comment,
}


@router.post("/alerts/{uuid}/{action}", dependencies=[Depends(guard.require_same_origin)])
async def act(request: Request, context: ContextDep, uuid: str, action: str) -> Response:
    """What a form of an alert's page asks for."""
    form = await guard.form_of(request)
    source = Source("alert page", request.client.host if request.client else "")
    try:
        do = ACTIONS.get(action)
        alert = _uuid(uuid)
        if do is None or alert is None:
            raise NotFoundError("There is no such alert or action. The list of alerts leads to each alert's page.")
        return await run_in_threadpool(_act, request, context, alert, form, lambda: do(context, source, alert, form))
    except ProblemError as error:
        return problem(request, error)


def _act(request: Request, context: Context, alert: UUID, form: Form, do: Callable[[], None]) -> Response:
    try:
        do()
    except (InvalidError, ConflictError) as error:
        filled, page = refused(form, error, ("by", "note", "hours", "assignee")), alert_page(context, alert)
        return render(
            request, "alert.html", status=error.status, alert=page, form=filled, home=f"/alerts/{alert}",
            plotly=static_files.plotly_path(),
        )  # fmt: skip
    return RedirectResponse(f"{base_of(request)}/alerts/{alert}", 303)


def _said(form: Form) -> dict[str, str]:
    by = form.get("by", "").strip()[:256] or "somebody"
    return {"by": by, "note": form.get("note", "").strip()[:4000]}


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
