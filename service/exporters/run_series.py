"""The series of one run, read in pieces that fit in memory however long the run is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.database.models import Project, Run
from service.series.live import NO_LIMIT
from service.series.repository import Points, SeriesRepository

PIECE = 5_000  # rows of one window
CHUNKS = 16  # of one metric in memory at a time, where metrics are read one by one
METRICS = 100  # of which a chunk each is in memory at a time, where they are read together
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
        """Every metric with all its points, one after another, a metric in pieces in order of step."""
        for name in self.names:
            for first, last in _spans(self._series.chunk_starts(self.run.id, [name]), CHUNKS):
                read = self._series.read(self.run.id, [name], from_step=first, to_step=last, superseded=self.superseded)
                if name in read and len(read[name]):
                    yield name, read[name]

    def windows(self) -> Iterator[Window]:
        """Live points row by row in order of step, in windows of at most PIECE rows."""
        starts = self._series.chunk_starts(self.run.id, self.names)
        counts = Counter(name for _, name in starts)
        densest = max(self.names, key=lambda name: counts[name], default="")
        for first, last in _spans(starts, 1):
            for begin, end in self._parts(densest, first, last):
                yield from self._windows(begin, end)

    def _parts(self, densest: str, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The span, cut where there are so many metrics that a chunk of each is too much."""
        parts = -(-len(self.names) // METRICS)
        if parts == 1:
            yield first, last
            return
        points = self._series.read(self.run.id, [densest], from_step=first, to_step=last)[densest]
        cuts = points.steps[:: max(-(-len(points) // parts), 1)][1:].tolist()
        yield from _between(first, cuts, last)

    def _windows(self, first: int, last: int) -> Iterator[Window]:
        found = self._series.read(self.run.id, [*self.names, TIME], from_step=first, to_step=last)
        times = found.pop(TIME, None)
        found = {name: points for name, points in found.items() if len(points)}
        if not found:
            return
        steps = np.unique(np.concatenate([points.steps for points in found.values()]))
        at = dict(zip(times.steps.tolist(), times.values.tolist(), strict=True)) if times is not None else {}
        for start in range(0, len(steps), PIECE):
            yield _window(steps[start : start + PIECE], found, at)


def _window(steps: NDArray[np.int64], found: Mapping[str, Points], times: Mapping[int, float]) -> Window:
    rows: list[dict[str, float]] = [{} for _ in range(len(steps))]
    tokens = np.full(len(steps), np.nan)
    for name, points in found.items():
        mine = slice(*np.searchsorted(points.steps, [steps[0], steps[-1] + 1]).tolist())
        places = np.searchsorted(steps, points.steps[mine])
        tokens[places] = points.tokens[mine]
        for place, value in zip(places.tolist(), points.values[mine].tolist(), strict=True):
            rows[place][name] = value
    listed: list[int] = steps.tolist()
    known = [None if value != value else value for value in tokens.tolist()]
    return Window(listed, known, [times.get(step) for step in listed], rows)


def _spans(starts: Sequence[tuple[int, str]], chunks: int) -> Iterator[tuple[int, int]]:
    """Inclusive spans of steps that follow each other over all steps, in each of which about that many chunks of a
    metric begin. `starts` are (first step, metric) of chunks, by step."""
    cuts: list[int] = []
    begun: Counter[str] = Counter()
    for step, name in starts:
        begun[name] += 1
        if begun[name] > chunks:
            if step > (cuts[-1] if cuts else 0):
                cuts.append(step)
            begun = Counter({name: 1})
    return _between(0, cuts, NO_LIMIT)


def _between(first: int, cuts: Sequence[int], last: int) -> Iterator[tuple[int, int]]:
    """Inclusive spans between `first`, the steps at which a new one begins, and `last`."""
    for begin, following in pairwise([first, *cuts, last + 1]):
        yield begin, following - 1


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
