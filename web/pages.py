"""The pages, and the figures they fetch. Everything here needs the token, where one is set."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlencode
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import RedirectResponse

from service.alerts.endpoints import list_alerts
from service.auth.token import require_token
from service.context import ContextDep
from service.database.engine import reading
from service.errors import InvalidError, NotFoundError, ProblemError
from service.references.repository import ReferenceRepository
from service.reports.endpoints import At, Format, read_report
from service.runs.repository import RunRepository
from web import alert_actions, guard, problem_pages, run_actions, settings_pages, static_files
from web.content.alert import alert_page
from web.content.api import operations
from web.content.checkpoints import checkpoint_table
from web.content.choices import Choices
from web.content.compare import comparison
from web.content.compare_figures import compare_figures
from web.content.figures import GROUPS
from web.content.panels import Group
from web.content.reference import reference_lines, reference_page
from web.content.reference_figures import stage_figures
from web.content.ribbon import with_ribbon
from web.content.run import run_page
from web.content.runs import SORTS, VERDICTS, run_list
from web.content.scene import set_scene
from web.content.small import small_gap
from web.figures.layout import AxisKind
from web.figures.palette import palette_of
from web.forms import EMPTY
from web.rendering import base_of, render

COMPRESS_FROM = 4096  # bytes
ALERTS = 100  # of a page

STATES: dict[str, Literal["firing", "acknowledged", "resolved"]] = {
    "firing": "firing",
    "acknowledged": "acknowledged",
    "resolved": "resolved",
}
AXES: dict[str, AxisKind] = {"tokens": "tokens", "steps": "steps", "time": "time"}
Theme = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class ShownQuery:
    """What the address of a figure asks for."""

    choices: Choices
    theme: Theme


def shown_query(
    x: AxisKind = "tokens",
    low: Annotated[float | None, Query(alias="from", allow_inf_nan=False)] = None,
    high: Annotated[float | None, Query(alias="to", allow_inf_nan=False)] = None,
    log: bool = False,
    smooth: bool = True,
    superseded: bool = False,
    theme: Theme = "light",
) -> ShownQuery:
    """The part of a figure's address that a reader has chosen."""
    return ShownQuery(Choices.of(x, low=low, high=high, log=log, smooth=smooth, superseded=superseded), theme)


Shown = Annotated[ShownQuery, Depends(shown_query)]

pages = APIRouter(include_in_schema=False, dependencies=[Depends(guard.require_sign_in)])
figures = APIRouter(include_in_schema=False, prefix="/pages", dependencies=[Depends(require_token)])


@pages.get("/")
def runs(
    request: Request,
    context: ContextDep,
    project: Annotated[str | None, Query(max_length=256)] = None,
    search: Annotated[str, Query(max_length=256)] = "",
    verdict: Annotated[str, Query(max_length=32)] = "",
    sort: Annotated[str, Query(max_length=32)] = "newest",
    archived: Annotated[str, Query(max_length=8)] = "",
    cursor: Annotated[str | None, Query(max_length=2048)] = None,
) -> Response:
    """Every run at a glance."""
    try:
        found = run_list(
            context, project=project, search=search, verdict=verdict, sort=sort, archived=bool(archived), cursor=cursor
        )
    except InvalidError as error:
        return _problem(request, error)
    return render(request, "runs.html", runs=found, verdicts=VERDICTS, sorts=SORTS)


@pages.get("/runs")
def runs_alias(request: Request) -> Response:
    """The same list, where people look for it."""
    return RedirectResponse(f"{base_of(request)}/", 308)


@pages.get("/runs/{uuid}")
def run(request: Request, context: ContextDep, uuid: str, x: str = "tokens") -> Response:
    """Is it still the same run?"""
    try:
        content = run_page(context, _uuid(uuid, "run"))
    except ProblemError as error:
        return _problem(request, error)
    axis = AXES.get(x, "tokens")
    return render(request, "run.html", run=content, axis=axis, form=EMPTY, plotly=static_files.plotly_path())


@pages.get("/compare")
def compare(
    request: Request,
    context: ContextDep,
    run: Annotated[list[UUID] | None, Query(max_length=50)] = None,
    x: str = "tokens",
) -> Response:
    """Several runs and references beside each other."""
    try:
        content = comparison(context, run or [])
    except ProblemError as error:
        return _problem(request, error)
    query = urlencode([("run", str(found.uuid)) for found in content.runs])
    axis = AXES.get(x, "tokens")
    return render(request, "compare.html", page=content, query=query, axis=axis, plotly=static_files.plotly_path())


@pages.get("/alerts")
def alerts(
    request: Request,
    context: ContextDep,
    state: Annotated[str, Query(max_length=32)] = "",
    cursor: Annotated[str | None, Query(max_length=256)] = None,
) -> Response:
    """The newest alerts; a state that there is not counts as any."""
    chosen = STATES.get(state)
    try:
        page = list_alerts(context, state=chosen, cursor=cursor, limit=ALERTS)
    except InvalidError as error:
        return _problem(request, error)
    return render(request, "alerts.html", alerts=page.items, cursor=page.next_cursor, states=STATES, state=chosen or "")


@pages.get("/alerts/{uuid}")
def alert(request: Request, context: ContextDep, uuid: str) -> Response:
    """One alert: evidence, causes, what to check, history. Chat messages link here."""
    try:
        content = alert_page(context, _uuid(uuid, "alert"))
    except ProblemError as error:
        return _problem(request, error)
    return render(request, "alert.html", alert=content, form=EMPTY, plotly=static_files.plotly_path())


@pages.get("/reports/{uuid}")
def report(
    request: Request,
    context: ContextDep,
    uuid: str,
    format_: Annotated[Format, Query(alias="format")] = "html",
    at: At = None,
) -> Response:
    """A run's report: one page that can be printed and kept."""
    try:
        return read_report(context, _uuid(uuid, "run"), format_, at)
    except ProblemError as error:
        return _problem(request, error)


@pages.get("/references")
def references(request: Request, context: ContextDep) -> Response:
    """What is installed to compare with."""
    return render(request, "references.html", references=reference_lines(context))


@pages.get("/references/{slug}")
def reference(request: Request, context: ContextDep, slug: str) -> Response:
    """One reference: curves, source, tolerances, tasks, schedule."""
    try:
        content = reference_page(context, slug)
    except NotFoundError as error:
        return _problem(request, error)
    return render(request, "reference.html", ref=content, plotly=static_files.plotly_path())


@pages.get("/api/docs")
def api(request: Request) -> Response:
    """What programs can ask for."""
    app: FastAPI = request.app
    return render(request, "api.html", groups=operations(app.openapi()), version=app.version)


@figures.get("/runs/{uuid}/figures/{name}")
def run_figures(request: Request, context: ContextDep, uuid: UUID, name: str, shown: Shown) -> Response:
    """One group of a run's figures, as Plotly's JSON; between `from` and `to` on the axis every point is drawn, if they
    are not more than a picture can hold."""
    group = GROUPS.get(name)
    if group is None:
        raise NotFoundError(f"There are no figures {name!r}. There are {', '.join(GROUPS)}.")
    with reading(context.engine) as session:
        found = RunRepository(session).by_uuid(uuid)
        if found is None:
            raise NotFoundError(f"There is no run {uuid}.")
        scene = set_scene(session, found, shown.choices, palette_of(shown.theme))
        drawn = group(scene)
        return _answer(request, drawn if name == "segments" else with_ribbon(drawn, scene))


@figures.get("/runs/{uuid}/checkpoints")
def run_checkpoints(request: Request, context: ContextDep, uuid: UUID) -> Response:
    """The table of checkpoints, as a part of the run's page."""
    with reading(context.engine) as session:
        found = RunRepository(session).by_uuid(uuid)
        if found is None:
            raise NotFoundError(f"There is no run {uuid}.")
        return render(request, "checkpoints.html", table=checkpoint_table(session, found))


@figures.get("/runs/{uuid}/gap.svg")
def run_sparkline(request: Request, context: ContextDep, uuid: UUID) -> Response:
    """The gap of a run's training loss, small, for the list."""
    with reading(context.engine) as session:
        found = RunRepository(session).by_uuid(uuid)
        if found is None:
            raise NotFoundError(f"There is no run {uuid}.")
        return _cached(request, small_gap(session, found).encode(), "image/svg+xml")


@figures.get("/compare/figures")
def figures_of_comparison(
    request: Request, context: ContextDep, run: Annotated[list[UUID], Query(max_length=50)], shown: Shown
) -> Response:
    """Every metric of the runs, each with a line for every run."""
    with reading(context.engine) as session:
        return _answer(request, compare_figures(session, run, shown.choices, palette_of(shown.theme)))


@figures.get("/references/{slug}/figures/{stage:path}")
def reference_figures(
    request: Request,
    context: ContextDep,
    slug: str,
    stage: str,
    x: Literal["tokens", "steps"] = "tokens",
    theme: Theme = "light",
) -> Response:
    """The curves of one stage of a reference."""
    with reading(context.engine) as session:
        found = ReferenceRepository(session).current(slug)
        if found is None:
            raise NotFoundError(f"There is no reference {slug}.")
        return _answer(request, stage_figures(session, found, stage, x, palette_of(theme)))


def _answer(request: Request, group: Group) -> Response:
    return _cached(request, msgspec.json.encode(group.to_json()), "application/json")


def _cached(request: Request, body: bytes, media_type: str) -> Response:
    headers = {
        "ETag": f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"',
        "Cache-Control": "private, no-cache",
        "Vary": "Accept-Encoding, Cookie",
        "X-Content-Type-Options": "nosniff",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if len(body) > COMPRESS_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, 3, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, media_type=media_type, headers=headers)


def _uuid(text: str, what: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFoundError(f"{text!r} is no id of a {what}.") from None


def _problem(request: Request, error: ProblemError) -> Response:
    return render(request, "problem.html", status=error.status, title=error.title, detail=error.detail)


def install(app: FastAPI) -> None:
    """Add pages, figures, scripts and styles to the application."""
    static_files.prepare()
    app.mount(static_files.static_path(), static_files.ImmutableFiles(directory=static_files.STATIC), name="static")
    for router in (
        static_files.router,
        guard.router,
        pages,
        alert_actions.router,
        run_actions.router,
        settings_pages.router,
        settings_pages.actions,
        figures,
    ):
        app.include_router(router)
    guard.install(app)
    problem_pages.install(app)
