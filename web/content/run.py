"""The text of a run's page: the headline, the judgements, the alerts and the events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from service.alerts.endpoints import list_alerts
from service.alerts.schemas import AlertSummary
from service.context import Context
from service.database.engine import reading
from service.hardware.endpoints import list_segments
from service.judgements.repository import JudgementRepository
from service.runs.conversions import Conversion, conversions
from service.runs.endpoints import read_run
from service.runs.repository import RunRepository
from service.runs.schemas import RunDetail, RunReference
from web.content.headline import TONES, Fact, facts, in_order
from web.content.runs import share_of
from web.content.starts import StartLine, starts
from web.content.timeline import Happening, timeline

ALERTS = 20


@dataclass(frozen=True, slots=True)
class RunPage:
    """Everything but the figures. `tone` is ok, warn, bad or empty; `share` is how much of the stage is behind."""

    uuid: UUID
    name: str
    project: str
    stage: str
    role: str
    reference: RunReference | None
    reference_slug: str | None
    verdict: str | None
    tone: str
    summary: str
    facts: Sequence[Fact]
    step: int | None
    tokens: float | None
    total_steps: int | None
    total_tokens: int | None
    share: float | None
    last_data_at: float | None
    finished: bool
    alerts: Sequence[AlertSummary]
    judgements: Sequence[Mapping[str, Any]]
    archived_at: float | None
    timeline: Sequence[Happening]
    step_meanings: Sequence[str]
    conversions: Sequence[Conversion]
    starts: Sequence[StartLine]


def run_page(context: Context, uuid: UUID) -> RunPage:
    """The page of one run.

    Raises:
        NotFoundError: no run has this id.
    """
    run = read_run(context, uuid)
    alerts = list_alerts(context, run=uuid, limit=ALERTS).items
    with reading(context.engine) as session:
        row = RunRepository(session).by_uuid(uuid)
        bodies = {j.rule: j.body for j in JudgementRepository(session).of_run(row.id)} if row else {}
        happened = timeline(session, row.id, alerts) if row else []
    meanings, converted = conversions(run.segments, run.metrics)
    return RunPage(
        uuid=run.id,
        name=run.name,
        project=run.project,
        stage=run.stage,
        role=run.role,
        reference=run.compared_with,
        reference_slug=run.reference,
        verdict=run.verdict,
        tone=TONES.get(run.verdict or "", ""),
        summary=_summary(run),
        facts=facts(bodies),
        step=run.last_step,
        tokens=run.last_tokens,
        total_steps=run.progress.stage_steps if run.progress else None,
        total_tokens=run.progress.stage_tokens if run.progress else None,
        share=share_of(run),
        last_data_at=run.last_data_at,
        finished=_finished(run),
        alerts=sorted(alerts, key=lambda alert: alert.state == "resolved"),
        judgements=in_order(bodies),
        archived_at=run.archived_at,
        timeline=happened,
        step_meanings=meanings,
        conversions=converted,
        starts=starts(list_segments(context, uuid).items),
    )


def _summary(run: RunDetail) -> str:
    if run.verdict_detail is not None:
        return str(run.verdict_detail.body.get("because", ""))
    if run.role == "reference":
        return "This is a published run, not a reproduction."
    if run.compared_with is None:
        return "Without a reference there is nothing to be the same as."
    return "The first judgement follows with the first data."


def _finished(run: RunDetail) -> bool:
    live = [segment for segment in run.segments if not segment.superseded]
    return bool(live) and all(segment.finished_at is not None for segment in live)
