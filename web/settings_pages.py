"""The settings: channels with a test button; rules and tolerances with what a change would have raised."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from service.channels.endpoints import change_channel, create_channel, delete_channel, replay_channel, test_channel
from service.channels.schemas import ChannelChange, NewChannel, Replay
from service.context import Context, ContextDep
from service.errors import NotFoundError, ProblemError
from service.rules.endpoints import reset_project_rule, reset_run_rule, set_project_rule, set_run_rule
from service.rules.previewing import TriedSetting, preview_run_rule
from service.rules.schemas import NewSetting
from web import guard
from web.content.settings import RulesPage, project_settings, run_settings, settings_page
from web.forms import EMPTY, Filled, Form, body_of, problem, refused
from web.rendering import base_of, render

router = APIRouter(include_in_schema=False, dependencies=[Depends(guard.require_sign_in)])
actions = APIRouter(
    include_in_schema=False, dependencies=[Depends(guard.require_sign_in), Depends(guard.require_same_origin)]
)
ProjectName = Annotated[str, Query(max_length=256)]
CHANNEL_FIELDS = ("name", "kind", "url", "secret", "project", "min_severity", "group_by")
RULE_FIELDS = ("rule", "tolerance", "minimum_evidence", "by", "reason")
ANSWERS = {"yes": True, "no": False}


@router.get("/settings")
def settings(request: Request, context: ContextDep) -> Response:
    """Channels, and the projects whose rules can be set."""
    return render(request, "settings.html", page=settings_page(context), told=None, secret=None, form=EMPTY)


@router.get("/settings/project")
def of_project(request: Request, context: ContextDep, name: ProjectName) -> Response:
    """Every rule and what counts for it in a project."""
    try:
        return render(request, "rules.html", page=project_settings(context, name), tried=None, form=EMPTY)
    except ProblemError as error:
        return problem(request, error)


@router.get("/settings/projects/{slug:path}")
def of_project_by_path(request: Request, slug: str) -> Response:
    """Where earlier versions had it; a project's name may hold slashes, which paths cannot."""
    return RedirectResponse(f"{base_of(request)}/settings/project?{urlencode({'name': slug})}", 308)


@router.get("/settings/runs/{uuid}")
def of_run(request: Request, context: ContextDep, uuid: UUID) -> Response:
    """Every rule and what counts for it in a run."""
    try:
        return render(request, "rules.html", page=run_settings(context, uuid), tried=None, form=EMPTY)
    except ProblemError as error:
        return problem(request, error)


@actions.post("/settings/channels")
async def add_channel(request: Request, context: ContextDep) -> Response:
    """Make a channel; a secret that the service made is shown on this one page."""
    form = await guard.form_of(request)

    def act() -> Response:
        try:
            body = body_of(NewChannel, {name: form.get(name, "").strip() for name in CHANNEL_FIELDS})
            made = create_channel(context, body)
        except ProblemError as error:
            return _settings(request, context, form=refused(form, error, CHANNEL_FIELDS), status=error.status)
        return _settings(request, context, f"Channel {made.name} was added. Send it a test message.", made.secret)

    return await _doing(request, act)


@actions.post("/settings/channels/{uuid}/{action}")
async def change(request: Request, context: ContextDep, uuid: UUID, action: str) -> Response:
    """Test, switch or remove a channel, or send again what was given up."""

    def act() -> Response:
        if action == "test":
            answer = test_channel(context, uuid)
            status = "" if answer.status is None else f" ({answer.status})"
            told = (
                f"The test message arrived after {answer.seconds:.2f} s{status}."
                if answer.delivered
                else f"The test message did not arrive{status}: {answer.error}"
            )
            return _settings(request, context, told)
        if action == "replay":
            count = replay_channel(context, uuid, Replay()).replayed
            told = f"{count:,} message{'' if count == 1 else 's'} will be sent again."
            return _settings(request, context, told)
        if action == "remove":
            delete_channel(context, uuid)
        elif action in ("on", "off"):
            change_channel(context, uuid, ChannelChange.model_validate({"enabled": action == "on"}))
        else:
            raise NotFoundError(f"A channel has no action {action!r}.")
        return RedirectResponse(f"{base_of(request)}/settings", 303)

    return await _doing(request, act)


@actions.post("/settings/project/rules/{action}")
async def change_project_rule(request: Request, context: ContextDep, name: ProjectName, action: str) -> Response:
    """Set a project's rule, or take it back."""
    form = await guard.form_of(request)

    def act() -> Response:
        try:
            _change(form, action, partial(set_project_rule, context, name), partial(reset_project_rule, context, name))
        except ProblemError as error:
            return _rules(request, project_settings(context, name), form, error)
        return RedirectResponse(f"{base_of(request)}/settings/project?{urlencode({'name': name})}", 303)

    return await _doing(request, act)


@actions.post("/settings/runs/{uuid}/rules/{action}")
async def change_run_rule(request: Request, context: ContextDep, uuid: UUID, action: str) -> Response:
    """Set a run's rule, take it back, or try a setting on what is stored."""
    form = await guard.form_of(request)

    def act() -> Response:
        try:
            if action == "try":
                tried = _try(context, uuid, form)
                return _rules(request, run_settings(context, uuid), form, tried=tried)
            _change(form, action, partial(set_run_rule, context, uuid), partial(reset_run_rule, context, uuid))
        except ProblemError as error:
            return _rules(request, run_settings(context, uuid), form, error)
        return RedirectResponse(f"{base_of(request)}/settings/runs/{uuid}", 303)

    return await _doing(request, act)


def _settings(
    request: Request,
    context: Context,
    told: str | None = None,
    secret: str | None = None,
    *,
    form: Filled = EMPTY,
    status: int = 200,
) -> Response:
    content = {"page": settings_page(context), "told": told, "secret": secret, "form": form, "home": "/settings"}
    return render(request, "settings.html", status=status, **content)


def _rules(
    request: Request, page: RulesPage, form: Form, error: ProblemError | None = None, tried: Any = None
) -> Response:
    """The page again with what was typed, and what was wrong with it or what it would have raised."""
    filled = Filled(form) if error is None else refused(form, error, RULE_FIELDS)
    return render(
        request, "rules.html", status=200 if error is None else error.status, page=page, tried=tried, form=filled,
        home=page.home,
    )  # fmt: skip


def _change(form: Form, action: str, save: Callable[..., object], reset: Callable[..., object]) -> None:
    rule = form.get("rule", "")
    if action == "save":
        save(rule, _setting(form))
    elif action == "reset":
        reset(rule, _by(form), form.get("reason", "").strip())
    else:
        raise NotFoundError(f"A rule has no action {action!r}.")


def _setting(form: Form) -> NewSetting:
    until = None
    if form.get("mute", "").isdigit():
        until = (datetime.now(UTC) + timedelta(hours=int(form["mute"]))).isoformat()
    return body_of(
        NewSetting,
        _numbers(form)
        | {
            "muted": True if until or form.get("mute") == "ever" else None,
            "muted_until": until,
            "by": form.get("by", "").strip(),
            "reason": form.get("reason", "").strip(),
        },
    )


def _try(context: Context, uuid: UUID, form: Form) -> Any:
    return preview_run_rule(context, uuid, body_of(TriedSetting, {"rule": form.get("rule", "")} | _numbers(form)))


def _numbers(form: Form) -> dict[str, Any]:
    return {
        "tolerance": form.get("tolerance", "").strip(),
        "minimum_evidence": form.get("minimum_evidence", "").strip(),
        "enabled": ANSWERS.get(form.get("enabled", "")),
    }


def _by(form: Form) -> str:
    return form.get("by", "").strip()[:256] or "somebody"


async def _doing(request: Request, act: Callable[[], Response]) -> Response:
    try:
        return await run_in_threadpool(act)
    except ProblemError as error:
        return problem(request, error)
