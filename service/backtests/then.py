"""A stored run as it stood before later trainer starts took a part of it back."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from service.database.models import Run
from service.detect.inputs import RunView, Series
from service.fingerprints.readings import combine
from service.fingerprints.repository import FingerprintRepository
from service.judgements.view import TRAIN, judged_metrics, trainer_starts
from service.runs.repository import RunRepository
from service.series.lineage import Lineage, lineage
from service.series.live import SegmentInfo, live_limits, oldest_first
from service.series.repository import SeriesRepository
from service.series.resolve import LaneInfo, Lanes


@dataclass(frozen=True, slots=True)
class Stand:
    """What was known between two rewinds: keys of the segments, and the first and last step that was made then."""

    segments: frozenset[int]
    first: int
    last: int


def stands(session: Session, run: Run) -> list[Stand]:
    """The run's history cut where a trainer start went back behind what had been reached; one part if none did."""
    line = lineage(session, run.id)
    read = SeriesRepository(session).read(run.id, [TRAIN], superseded=True).get(TRAIN)
    if read is None or len(read) == 0:
        return []
    others = frozenset(s.id for s in line.segments if not _mine(s, run))
    found: list[Stand] = []
    known: frozenset[int] = others
    first, reached = int(read.steps[0]), -1
    for trainer in (s for s in oldest_first(line.segments) if _mine(s, run)):
        steps = read.steps[read.segments == trainer.id]
        if len(steps) == 0:
            continue
        if trainer.start_step < reached:
            found.append(Stand(known, first, reached))
            first, reached = int(steps[0]), -1
        known |= {trainer.id}
        reached = max(reached, int(steps[-1]))
    return [*found, Stand(known, first, max(reached, first))]


def view_then(session: Session, run: Run, now: RunView, stand: Stand) -> RunView:
    """The view of a run with what was live while only a stand's segments were known; the rest is as in `now`."""
    series = _Then(session, stand.segments)
    read = series.read(run.id, judged_metrics(series.names(run.id)))
    metrics = {name: Series(p.steps, p.tokens, p.values) for name, p in read.items() if len(p)}
    line = lineage(session, run.id)
    limits = live_limits([s for s in line.segments if s.id in stand.segments])
    rows, windows = (
        combine([s.reading(limits[s.segment]) for s in sendings if s.segment in limits])
        for sendings in (FingerprintRepository(session).sendings(line.run_ids, kind=k) for k in ("rows", "windows"))
    )
    launches = [
        row.segment
        for row in RunRepository(session).segments(run.id)
        if row.segment.id in limits and limits[row.segment.id] > row.segment.start_step
    ]
    return replace(now, metrics=metrics, rows=rows, windows=windows, segments=trainer_starts(launches, rows))


class _Then(SeriesRepository):
    """Series as they stood while only some segments were known."""

    def __init__(self, session: Session, known: Set[int]) -> None:
        super().__init__(session)
        self._known = known
        self._cut: set[int] = set()

    def _run(self, run_id: int) -> Any:
        run = super()._run(run_id)
        if run_id not in self._cut:
            self._cut.add(run_id)
            run.lineage = _only(run.lineage, self._known)
            run.lanes = _KnownLanes(run.lineage.segments)
        return run


class _KnownLanes(Lanes):
    """Lanes of the known segments; what was written about the weights of another one does not count."""

    def info(self, segment_id: int, weights_id: int | None) -> LaneInfo:
        lane = super().info(segment_id, weights_id)
        return replace(lane, limit=-1) if weights_id is not None and weights_id not in self else lane


def _only(line: Lineage, known: Set[int]) -> Lineage:
    return replace(line, segments=[segment for segment in line.segments if segment.id in known])


def _mine(segment: SegmentInfo, run: Run) -> bool:
    return segment.kind == "trainer" and segment.run_id == run.id
