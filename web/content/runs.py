"""The list of runs."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from service.context import Context
from service.runs.endpoints import list_runs
from service.runs.schemas import RunSummary

PAGE = 50


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run of the list. `tokens` and `step` are how far it is, `share` (0 to 1) of its reference's stage."""

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


def run_lines(context: Context, project: str | None, cursor: str | None) -> tuple[list[RunLine], str | None]:
    """Reproductions, the newest first, and the cursor of the next page."""
    page = list_runs(context, project=project, role="reproduction", cursor=cursor, limit=PAGE)
    return [_line(run) for run in page.items], page.next_cursor


def _line(run: RunSummary) -> RunLine:
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
    )


def share_of(run: RunSummary) -> float | None:
    """How much of the reference's stage a run has behind it, at most 1; None where that cannot be told."""
    return None if run.progress is None else min(run.progress.steps_percent / 100, 1.0)
