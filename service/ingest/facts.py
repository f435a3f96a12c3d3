"""What the committer knows about segments and runs, kept until another process has written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, select
from sqlalchemy.orm import Session

from service.database.models import Metric, Project, Run, Segment
from service.ingest.segments import keep_place
from service.series.lineage import lineage
from service.series.live import AWAITED, SegmentInfo, TokenAxis, live_limits, oldest_first

_SEGMENTS = select(Segment.uuid, Segment.id, Segment.run_id)


@dataclass(slots=True)
class RunFacts:
    """One run as of `version` of its data."""

    version: int
    project: str
    uuid: UUID
    segments: dict[int, SegmentInfo]
    trainers: list[SegmentInfo]  # oldest first
    limits: dict[int, int]
    axis: TokenAxis  # within the stage
    metrics: dict[str, int]
    eval_sets: dict[str, str | None]


class Facts:
    """Segments never change their run, so they are kept for good; a run's facts are kept per data version."""

    def __init__(self) -> None:
        self._weights: dict[UUID, int] = {}
        self._segments: dict[UUID, tuple[int, int]] = {}
        self._runs: dict[int, RunFacts] = {}

    def segments(self, connection: Connection, uuids: Iterable[UUID]) -> dict[UUID, tuple[int, int]]:
        """Segment -> (its key, its run's key), of those that exist."""
        missing = {uuid for uuid in uuids if uuid not in self._segments}
        if missing:
            rows = connection.execute(_SEGMENTS.where(Segment.uuid.in_(missing), Segment.kind != AWAITED))
            self._segments.update({uuid: (segment_id, run_id) for uuid, segment_id, run_id in rows})
        return self._segments

    def weights(self, connection: Connection, uuid: UUID, run_id: int) -> int:
        """The key of a segment whose weights were evaluated. One that was not announced yet gets its place in the run:
        an evaluator may be ahead of its trainer."""
        if uuid not in self._weights:
            self._weights[uuid] = keep_place(connection, uuid, run_id)
        return self._weights[uuid]

    def run(self, connection: Connection, run_id: int, version: int) -> RunFacts:
        """The run's facts at this version of its data. Its state must be locked."""
        facts = self._runs.get(run_id)
        if facts is None or facts.version != version:
            facts = self._runs[run_id] = _load(connection, run_id, version)
        return facts

    def forget(self) -> None:
        """Nothing is known: what was learnt may have been rolled back."""
        self._segments.clear()
        self._weights.clear()
        self._runs.clear()


def _load(connection: Connection, run_id: int, version: int) -> RunFacts:
    session = Session(connection)
    project, uuid = session.execute(
        select(Project.slug, Run.uuid).join(Run, Run.project_id == Project.id).where(Run.id == run_id)
    ).one()
    segments = lineage(session, run_id).segments
    metrics = session.execute(select(Metric.name, Metric.id, Metric.eval_set).where(Metric.run_id == run_id)).all()
    return RunFacts(
        version,
        project,
        uuid,
        {segment.id: segment for segment in segments},
        [segment for segment in oldest_first(segments) if segment.kind == "trainer"],
        live_limits(segments),
        TokenAxis(segments),
        {name: metric_id for name, metric_id, _ in metrics},
        {name: eval_set for name, _, eval_set in metrics},
    )
