"""A run's report, and whether it keeps limits."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session

from service.context import ContextDep
from service.database.engine import reading
from service.database.models import Run
from service.errors import field_error
from service.reports.assemble import assemble, known_of
from service.reports.check import Limits, check
from service.reports.document import Report, to_json
from service.reports.html import policy, to_html
from service.reports.landmarks import PlaceError, places
from service.reports.markdown import to_markdown
from service.reports.schemas import CheckAnswer, check_answer
from service.runs.endpoints import unknown_run
from service.runs.repository import RunRepository

Format = Literal["html", "md", "json"]
At = Annotated[
    str | None, Query(max_length=1000, description="Checkpoints, by step or tokens: `735000,1.5T`; else a few.")
]
Beyond = Annotated[float | None, Query(gt=0, allow_inf_nan=False)]
TYPES = {"html": "text/html", "md": "text/markdown", "json": "application/json"}
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "private, no-cache"}

router = APIRouter(tags=["reports"])


@router.get(
    "/runs/{run_id}/report",
    operation_id="read_report",
    response_class=Response,
    responses={200: {"content": {kind: {} for kind in TYPES.values()}, "description": "See docs/report.md."}},
)
def read_report(
    context: ContextDep,
    run_id: UUID,
    format_: Annotated[Format, Query(alias="format")] = "json",
    at: At = None,
    curves: Annotated[bool, Query(description="Without them it is small; for json and md.")] = True,
) -> Response:
    """One run's whole account from what is stored; the same bytes for the same data."""
    text = rendered(report_of(context, run_id, at, drawn=curves or format_ == "html"), format_)
    headers = HEADERS | ({"Content-Security-Policy": policy()} if format_ == "html" else {})
    return Response(text.encode("utf-8", "replace"), media_type=TYPES[format_], headers=headers)


@router.get("/runs/{run_id}/check", operation_id="check_run")
def check_run(
    context: ContextDep,
    run_id: UUID,
    max_gap: Annotated[Beyond, Query(description="Nats, of the train loss's newest block.")] = None,
    heldout: Annotated[Beyond, Query(description="Nats, of every held-out loss.")] = None,
    tasks: Annotated[Beyond, Query(description="Accuracy, of the mean over the tasks.")] = None,
    no_repeats: bool = False,
    verdict: Annotated[Literal["matching", "consistent"] | None, Query(description="The least one.")] = None,
    at: Annotated[int | None, Query(ge=0, le=2**53 - 1, description="A step; by default the newest.")] = None,
) -> CheckAnswer:
    """Does a run keep these limits? With none of them: is its verdict at least `consistent`?"""
    asked = max_gap is not None or heldout is not None or tasks is not None or no_repeats
    if verdict is not None and at is not None:
        raise field_error("verdict", "is of the newest data; it cannot be asked for at an earlier step")
    if not asked and verdict is None:
        if at is not None:
            raise field_error("at", "goes with max_gap, heldout, tasks or no_repeats")
        verdict = "consistent"
    with reading(context.engine) as session:
        known = known_of(session, _run(session, run_id))
        return check_answer(run_id, check(known, Limits(max_gap, heldout, tasks, no_repeats, verdict, at)))


def report_of(context: ContextDep, run_id: UUID, at: str | None, *, drawn: bool = True) -> Report:
    """The report of a run.

    Raises:
        NotFoundError: there is no such run.
        InvalidError: the checkpoints cannot be read.
    """
    try:
        wanted = places(at) if at else []
    except PlaceError as error:
        raise field_error("at", str(error)) from error
    with reading(context.engine) as session:
        return assemble(session, _run(session, run_id), wanted, drawn=drawn)


def rendered(report: Report, format_: str) -> str:
    """The report's text in one of its forms."""
    return {"html": to_html, "md": to_markdown, "json": _json}[format_](report)


def _json(report: Report) -> str:
    return to_json(report) + "\n"


def _run(session: Session, uuid: UUID) -> Run:
    run = RunRepository(session).by_uuid(uuid)
    if run is None:
        raise unknown_run(uuid)
    return run
