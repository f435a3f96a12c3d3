"""The list of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from service.context import Context
from service.database.engine import reading
from service.hardware.throughput import RATE as SPEED
from service.judgements.repository import JudgementRepository
from service.runs.answers import RunAnswers
from service.runs.listing import NOT_JUDGED, Listing, Sort
from service.runs.repository import RunRepository, RunRow
from service.runs.schemas import RunSummary
from service.series.repository import SeriesRepository

PAGE = 50
VERDICTS = ("diverged", "drifting", "consistent", "matching", "not enough data", NOT_JUDGED)
SORTS: Mapping[Sort, str] = {
    "newest": "newest first",
    "activity": "latest data first",
    "alerts": "most open alerts first",
    "tokens": "furthest first",
    "name": "by name",
}


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run of the list. `tokens` and `step` are how far it is, `share` (0 to 1) of its reference's stage.

    `gap` is what was last judged of its training loss, `speed` its newest tokens per second and device.
    """

    uuid: UUID
    name: str
    project: str
    stage: str
    reference: str | None
    verdict: str | None
    step: int | None
    tokens: float | None
    share: float | None
    open_alerts: int
    last_data_at: float | None
    version: int
    gap: Mapping[str, Any] | None
    speed: float | None


@dataclass(frozen=True, slots=True)
class RunList:
    """One page of the list, the choices that made it, and the address of the next page: "" at the end."""

    lines: list[RunLine]
    search: str
    verdict: str
    sort: Sort
    archived: bool
    project: str | None
    following: str

    @property
    def chosen(self) -> bool:
        """Whether some runs are left out by what was chosen."""
        return bool(self.search or self.verdict or self.project or self.archived)


def run_list(
    context: Context,
    *,
    search: str = "",
    verdict: str = "",
    sort: str = "newest",
    archived: bool = False,
    project: str | None = None,
    cursor: str | None = None,
) -> RunList:
    """Reproductions. A verdict or an order that there is not counts as none: addresses outlive versions.

    Raises:
        InvalidError: the cursor was not made for this order.
    """
    orders: dict[str, Sort] = {key: key for key in SORTS}
    order = orders.get(sort, "newest")
    verdict = verdict if verdict in VERDICTS else ""
    search = search.strip()
    listing = Listing(
        project=project or None,
        role="reproduction",
        verdict=verdict or None,
        search=search or None,
        archived=archived,
        sort=order,
        cursor=cursor,
    )
    with reading(context.engine) as session:
        rows, following = RunRepository(session).page(listing, PAGE)
        answers, series = RunAnswers(session), SeriesRepository(session)
        gaps = JudgementRepository(session).of_rule("train_drift", [row.run.id for row in rows])
        lines = [_line(row, answers.summary(row), gaps, series) for row in rows]
    address = ""
    if following is not None:
        query = {"project": project, "search": search, "verdict": verdict, "sort": order, "cursor": following}
        if archived:
            query["archived"] = "yes"
        address = urlencode({name: value for name, value in query.items() if value})
    return RunList(lines, search, verdict, order, archived, project, address)


def _line(row: RunRow, run: RunSummary, gaps: Mapping[int, Any], series: SeriesRepository) -> RunLine:
    judged = gaps.get(row.run.id)
    speed = series.latest(row.run.id, [SPEED]).get(SPEED) if run.last_step is not None else None
    return RunLine(
        uuid=run.id,
        name=run.name,
        project=run.project,
        stage=run.stage,
        reference=run.reference,
        verdict=run.verdict,
        step=run.last_step,
        tokens=run.last_tokens,
        share=share_of(run),
        open_alerts=run.open_alerts,
        last_data_at=run.last_data_at,
        version=run.data_version,
        gap=judged.body if judged is not None and judged.body.get("value") is not None else None,
        speed=speed[1] if speed is not None else None,
    )


def share_of(run: RunSummary) -> float | None:
    """How much of the reference's stage a run has behind it, at most 1; None where that cannot be told."""
    return None if run.progress is None else min(run.progress.steps_percent / 100, 1.0)
