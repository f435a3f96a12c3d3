"""Whether this process lives, whether it can work, and what it does."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError

from service.auth.token import require_token
from service.context import ContextDep
from service.database.engine import reading
from service.database.migrate import current_revision, head_revision
from service.errors import ProblemError
from service.health.repository import store_counts
from service.health.schemas import Health, Readiness
from service.health.telemetry import Telemetry
from service.worker.loop import lag

router = APIRouter(tags=["health"])


class NotReadyError(ProblemError):
    """The service cannot work now."""

    status = 503
    title = "Not ready"


@router.get("/healthz", operation_id="healthz")
def healthz() -> Health:
    """The process answers. Does not touch the database."""
    return Health()


@router.get("/readyz", operation_id="readyz")
def readyz(context: ContextDep) -> Readiness:
    """The database answers, its schema is this program's, and judging keeps up with the data; 503 where not."""
    head = head_revision(context.engine)
    try:
        current = current_revision(context.engine)
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise NotReadyError(f"The database does not answer: {reason}") from error
    if current != head:
        raise NotReadyError(f"The database is on revision {current}, this program works with {head}.")
    with reading(context.engine) as session:
        waits = lag(session)
    longest = context.settings.max_judgement_lag_seconds
    if longest and waits > longest:
        raise NotReadyError(
            f"Judging lags: the oldest data has waited {waits:,.0f} s ({longest:,.0f} s are allowed). "
            "Is a worker running on this database? Start `pacenote worker`, or `pacenote serve` without --no-worker."
        )
    return Readiness(revision=head, judgement_lag_seconds=round(waits, 3))


@router.get("/metrics", operation_id="metrics", dependencies=[Depends(require_token)], response_class=Response)
def metrics(request: Request, context: ContextDep) -> Response:
    """Counters and gauges in the Prometheus text format."""
    telemetry: Telemetry = request.app.state.telemetry
    with reading(context.engine) as session:
        counts = store_counts(session)
        telemetry.lag.set(lag(session))
    telemetry.journal_points.set(counts.journal_points)
    for role, count in counts.runs.items():
        telemetry.runs.labels(role).set(count)
    return Response(telemetry.text(), media_type=CONTENT_TYPE_LATEST)
