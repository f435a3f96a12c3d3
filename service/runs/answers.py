"""Builds the answers about a run from its rows."""

from __future__ import annotations

import time

from sqlalchemy.orm import Session

from service.database.models import Reference, Run, RunState
from service.references.describe import description
from service.references.description import Stage
from service.references.repository import ReferenceRepository
from service.runs.repository import RunRepository, RunRow, SegmentRow
from service.runs.schemas import (
    Fork,
    Progress,
    RunDetail,
    RunReference,
    RunSummary,
    SegmentAnswer,
    VerdictAnswer,
)
from service.series.repository import SeriesRepository

ORDER_ONLY = 1e6  # a `started_at` before this (unix seconds) stands for an order, not for a time


class RunAnswers:
    """Answers about runs inside one session; references are looked up once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._references: dict[str, Reference | None] = {}

    def summary(self, row: RunRow) -> RunSummary:
        """A run as a list shows it."""
        run, state = row.run, row.state
        last_data_at = state.last_data_at if state else None
        return RunSummary(
            id=run.uuid,
            project=row.project,
            name=run.name,
            stage=run.stage,
            role=run.role,
            reference=run.reference,
            verdict=row.verdict.state if row.verdict else None,
            open_alerts=row.open_alerts,
            last_step=state.last_step if state else None,
            last_tokens=state.last_tokens if state else None,
            last_data_at=last_data_at,
            age_seconds=None if last_data_at is None else max(time.time() - last_data_at, 0.0),
            progress=self._progress(run, state),
            data_version=state.data_version if state else 0,
            created_at=run.created_at,
            archived_at=run.archived_at,
        )

    def detail(self, row: RunRow) -> RunDetail:
        """A run as its page shows it."""
        run, verdict = row.run, row.verdict
        fork = None
        if run.forked_from is not None and run.forked_at_step is not None:
            fork = Fork(run=run.forked_from, step=run.forked_at_step)
        return RunDetail(
            **dict(self.summary(row)),
            judged_version=RunRepository(self.session).judged_version(run.id),
            token_offset=run.token_offset,
            forked_from=fork,
            data=run.data,
            metrics=sorted(SeriesRepository(self.session).names(run.id)),
            segments=[segment_answer(segment) for segment in RunRepository(self.session).segments(run.id)],
            compared_with=self._compared_with(run),
            verdict_detail=VerdictAnswer(state=verdict.state, body=verdict.body, decided_at=verdict.decided_at)
            if verdict
            else None,
        )

    def _reference(self, slug: str) -> Reference | None:
        if slug not in self._references:
            self._references[slug] = ReferenceRepository(self.session).current(slug)
        return self._references[slug]

    def _stage(self, run: Run) -> Stage | None:
        reference = self._reference(run.reference) if run.reference else None
        return description(reference).stage(run.stage) if reference else None

    def _progress(self, run: Run, state: RunState | None) -> Progress | None:
        stage = self._stage(run)
        if stage is None or state is None or state.last_step is None:
            return None
        tokens = stage.steps * stage.tokens_per_step
        return Progress(
            steps_percent=100 * state.last_step / stage.steps,
            tokens_percent=None if state.last_tokens is None else 100 * state.last_tokens / tokens,
            stage_steps=stage.steps,
            stage_tokens=tokens,
        )

    def _compared_with(self, run: Run) -> RunReference | None:
        reference = self._reference(run.reference) if run.reference else None
        if reference is None:
            return None
        repository, content = ReferenceRepository(self.session), description(reference)
        curve = repository.run_of(reference.id, run.stage)
        return RunReference(
            slug=reference.slug,
            version=reference.version,
            title=reference.title,
            run=curve.uuid if curve else None,
            siblings=[sibling.uuid for sibling in repository.siblings(reference.id, run.stage)],
            primary_heldout=next((entry.metric for entry in content.heldout if entry.primary), ""),
            published_tasks=any(task.published for task in content.tasks),
        )


def segment_answer(row: SegmentRow) -> SegmentAnswer:
    """A segment, and up to which step its points are live."""
    segment = row.segment
    return SegmentAnswer(
        id=segment.uuid,
        kind=segment.kind,
        start_step=segment.start_step,
        start_tokens=segment.start_tokens,
        tokens_per_step=segment.tokens_per_step,
        ramp=segment.ramp,
        topology=segment.topology,
        config=segment.config,
        versions=segment.versions,
        sample_rows=segment.sample_rows,
        started_at=segment.started_at if segment.started_at >= ORDER_ONLY else None,
        finished_at=segment.finished_at,
        live_to_step=row.live_to_step,
        superseded=row.superseded,
    )
