"""The series of one run, read in pieces that fit in memory however long the run is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.database.models import Project, Run
from service.series.repository import Points, SeriesRepository

PIECE = 5_000  # points of each metric in one window of steps
TIME = "axis/time"


@dataclass(frozen=True, slots=True)
class Window:
    """All metrics between two steps: `steps` of its rows ascending, `tokens` (None: unknown), `times` in unix seconds
    (None: unknown), and per row name -> value."""

    steps: list[int]
    tokens: list[float | None]
    times: list[float | None]
    rows: list[dict[str, float]]


class RunSeries:
    """Live points of a run, all its metrics; with `superseded` every point that was ever accepted."""

    def __init__(self, session: Session, run: Run, *, superseded: bool = False) -> None:
        self.run = run
        self.superseded = superseded
        self._series = SeriesRepository(session)
        self.names = self._series.names(run.id)

    @property
    def segments(self) -> dict[int, str] | None:
        """Ids of segments by number where superseded points are asked for, None where not."""
        return self._series.segment_uuids(self.run.id) if self.superseded else None

    def each(self) -> Iterator[tuple[str, Points]]:
        """Every metric with all its points, one at a time."""
        for name in self.names:
            points = self._series.read(self.run.id, [name], superseded=self.superseded).get(name)
            if points is not None and len(points):
                yield name, points

    def windows(self) -> Iterator[Window]:
        """Live points row by row in order of step, in windows of at most PIECE steps of each metric."""
        edges = self._edges()
        for first, following in pairwise(edges):
            yield self._window(first, following - 1)

    def _edges(self) -> list[int]:
        """Steps between which no metric has more than PIECE points; the last one lies beyond all."""
        edges: set[int] = set()
        last = -1
        for name in self.names:
            points = self._series.read(self.run.id, [name]).get(name)
            if points is not None and len(points):
                edges.update(points.steps[::PIECE].tolist())
                last = max(last, int(points.steps[-1]))
        return [*sorted(edges), last + 1]

    def _window(self, first: int, last: int) -> Window:
        found = self._series.read(self.run.id, [*self.names, TIME], from_step=first, to_step=last)
        times = found.pop(TIME, None)
        steps = np.unique(np.concatenate([points.steps for points in found.values()]))
        rows: list[dict[str, float]] = [{} for _ in range(len(steps))]
        tokens = np.full(len(steps), np.nan)
        for name, points in found.items():
            places = np.searchsorted(steps, points.steps)
            tokens[places] = points.tokens
            for place, value in zip(places.tolist(), points.values.tolist(), strict=True):
                rows[place][name] = value
        at = dict(zip(times.steps.tolist(), times.values.tolist(), strict=True)) if times is not None else {}
        listed: list[int] = steps.tolist()
        known = [None if value != value else value for value in tokens.tolist()]
        return Window(listed, known, [at.get(step) for step in listed], rows)


def find_runs(session: Session, text: str, stage: str | None) -> list[tuple[str, Run]]:
    """(project, run) of the runs that a name stands for: `NAME` or `PROJECT/NAME`, of any stage if none is given."""
    query = select(Project.slug, Run).join(Project, Run.project_id == Project.id)
    project, slash, name = text.partition("/")
    matches = Run.name == text
    if slash:
        matches = matches | ((Project.slug == project) & (Run.name == name))
    query = query.where(matches).order_by(Run.created_at, Run.id)
    if stage is not None:
        query = query.where(Run.stage == stage)
    return [(row[0], row[1]) for row in session.execute(query)]
