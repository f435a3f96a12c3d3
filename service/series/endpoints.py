"""Reading series back over HTTP."""

from __future__ import annotations

from collections.abc import Container
from hashlib import blake2b
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.context import ContextDep
from service.database.engine import reading
from service.errors import FieldError, NotFoundError, field_error
from service.runs.repository import RunRepository
from service.series.cache import AnswerCache
from service.series.formats import (
    MEDIA_TYPES,
    PIECE,
    exact_arrow,
    exact_csv,
    exact_json,
    exact_parquet,
    overview_json,
)
from service.series.live import NO_LIMIT
from service.series.repository import SeriesRepository

router = APIRouter(tags=["series"])
_answers = AnswerCache()

Format = Literal["json", "arrow", "csv", "parquet"]
Step = Annotated[int | None, Query(ge=0, lt=NO_LIMIT)]


@router.get(
    "/runs/{run}/series",
    operation_id="read_series",
    response_class=Response,
    responses={
        200: {"content": {media_type: {} for media_type in MEDIA_TYPES.values()}},
        304: {"description": "Nothing has changed since the answer with this ETag."},
    },
)
def read_series(
    run: UUID,
    request: Request,
    context: ContextDep,
    metric: Annotated[list[str], Query(min_length=1, max_length=200, description="Repeat it for several metrics.")],
    from_step: Annotated[Step, Query(alias="from")] = None,
    to_step: Annotated[Step, Query(alias="to")] = None,
    points: Annotated[int | None, Query(ge=1, le=20_000, description="At most so many buckets; none: exact.")] = None,
    superseded: Annotated[bool, Query(description="Also points that no longer count, and who wrote each.")] = False,
    form: Annotated[Format | None, Query(alias="format")] = None,
) -> Response:
    """Series between two steps (inclusive), exactly, or in at most `points` buckets that keep every extreme.

    `axis/time` (unix seconds) and `axis/tokens` (as the trainer gave them, within the stage) can be read like metrics.
    """
    form = form or _accepted(request)
    if points is not None and (form != "json" or superseded):
        raise field_error("points", "an overview is JSON of live points: leave `points` out for the exact series")
    with reading(context.engine) as session:
        found = RunRepository(session).by_uuid(run)
        if found is None:
            raise NotFoundError(f"There is no run {run}.")
        repository = SeriesRepository(session)
        question = (str(context.engine.url), repository.version(found.id), tuple(metric), from_step, to_step)
        key = (*question, points, superseded, form)
        etag = f'"{blake2b(repr(key).encode(), digest_size=12).hexdigest()}"'
        headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Accept"}
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        kept = _answers.get(key)
        if kept is not None:
            return Response(kept, headers=headers, media_type=MEDIA_TYPES[form])
        if points is not None:
            overviews = repository.overviews(found.id, metric, points=points, from_step=from_step, to_step=to_step)
            _check_found(metric, overviews)
            body = overview_json(str(run), overviews)
            _answers.put(key, body)
            return Response(body, headers=headers, media_type=MEDIA_TYPES[form])
        series = repository.read(found.id, metric, from_step=from_step, to_step=to_step, superseded=superseded)
        _check_found(metric, series)
        segments = repository.segment_uuids(found.id) if superseded else None
    if form in ("arrow", "parquet"):
        body = exact_arrow(series, segments) if form == "arrow" else exact_parquet(series, segments)
        return Response(body, headers=headers, media_type=MEDIA_TYPES[form])
    pieces = exact_json(str(run), series, segments) if form == "json" else exact_csv(series, segments)
    if sum(len(each) for each in series.values()) > PIECE:
        return StreamingResponse(pieces, headers=headers, media_type=MEDIA_TYPES[form])
    body = b"".join(pieces)
    _answers.put(key, body)
    return Response(body, headers=headers, media_type=MEDIA_TYPES[form])


def _accepted(request: Request) -> Format:
    """The first format that the Accept header names, JSON by default."""
    forms: dict[str, Format] = {
        "application/json": "json",
        "application/vnd.apache.arrow.stream": "arrow",
        "text/csv": "csv",
        "application/vnd.apache.parquet": "parquet",
    }
    for accepted in request.headers.get("accept", "").split(","):
        form = forms.get(accepted.partition(";")[0].strip().lower())
        if form is not None:
            return form
    return "json"


def _check_found(wanted: list[str], found: Container[str]) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        errors = [FieldError("metric", f"there is no {name}") for name in missing]
        raise NotFoundError(f"The run has no metric {', '.join(missing)}.", errors=errors)
