"""The second pass over a log: writes its points into import segments, a bounded number at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid5

import numpy as np
from sqlalchemy import Engine, delete, func, select, text, update
from sqlalchemy.orm import Session

from service.database.engine import reading, writing
from service.database.models import Chunk, Run, Segment
from service.importers.blocks import Block, Floats, Ints
from service.importers.canonical import TOKENS, converted
from service.importers.plan import Cutter, RunPlan
from service.importers.sole_import import sole_import
from service.importers.subtraction import Subtraction
from service.ingest.requests import Put
from service.ingest.segments import put_segment, run_uuid
from service.ingest.wire import MAX_STEP, SegmentBody
from service.series.live import NO_LIMIT
from service.series.repository import SeriesRepository
from service.series.writer import write_points

POINTS_AT_ONCE = 500_000  # of one transaction
STEPS_AT_ONCE = 500_000  # while counting what is superseded
BETWEEN_SEGMENTS = 1e-3  # seconds, where the log tells no times

Key = tuple[str, int]  # launch, and the number of the segment within it


@dataclass(frozen=True, slots=True)
class Goal:
    """Where one run of the log goes. `digest` is that of the file's content and of how it is read."""

    project: str
    name: str
    stage: str
    role: str
    reference: str | None
    tokens_per_step: int | None
    digest: bytes
    source: str
    format: str

    @property
    def run(self) -> UUID:
        """The run's public id."""
        return run_uuid(self.project, self.name, self.stage)

    def segment(self, run_in_log: str, key: Key) -> UUID:
        """The id of one segment: the same log again has the same."""
        return uuid5(self.run, f"{self.digest.hex()}/{run_in_log}/{key[0]}/{key[1]}")


@dataclass(slots=True)
class Outcome:
    """What became of one run's values.

    `copies` are conversions that are stored beside the raw value; `untold` counts, by the log's own name, values that
    could not be converted and are kept as they are alone.
    """

    stored: int = 0
    superseded: int = 0
    copies: int = 0
    untold: Counter[str] = field(default_factory=Counter[str])
    already: bool = False
    segments: list[int] = field(default_factory=list[int])
    run_id: int = 0


@dataclass(slots=True)
class _Open:
    """A segment that is being written."""

    id: int
    start_step: int = NO_LIMIT
    first_step: int = NO_LIMIT
    last: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    subtractions: dict[str, Subtraction] = field(default_factory=dict[str, Subtraction])


class Storer:
    """Writes the runs of one log."""

    def __init__(self, engine: Engine, goals: Mapping[str, Goal], runs: Mapping[str, RunPlan]) -> None:
        self._engine = engine
        self._goals = goals
        self._runs = runs
        self._now = time.time()
        self._order: dict[str, int] = {}
        self._open: dict[tuple[str, Key], _Open] = {}
        self._waiting: dict[tuple[str, Key], list[Block]] = {}
        self._points = 0
        self.outcomes = {name: Outcome() for name in runs}

    def store(self, blocks: Iterator[Block], say: Callable[[str], None] = lambda _: None) -> dict[str, Outcome]:
        """Write every block; of each run that is there already, nothing. `say` hears if another import is waited for.

        Raises:
            LogError: a run of that name is another kind of run.
        """
        with sole_import(self._engine, [goal.run for goal in self._goals.values()], say):
            return self._store(blocks)

    def _store(self, blocks: Iterator[Block]) -> dict[str, Outcome]:
        self._prepare()
        cutter = Cutter(self._runs)
        for block in blocks:
            if self.outcomes[block.run].already:
                continue
            for number, piece in cutter.pieces(block):
                self._waiting.setdefault((block.run, (block.launch, number)), []).append(piece)
                self._points += piece.points
                if self._points >= POINTS_AT_ONCE:
                    self._flush()
        self._flush()
        self._finish()
        return self.outcomes

    def _prepare(self) -> None:
        """Find which runs were imported before; what a broken import left is removed."""
        with reading(self._engine) as session:
            left = [entry for name, goal in self._goals.items() for entry in self._before(session, name, goal)]
        if left:
            with writing(self._engine) as session:
                for segment_id, run_id in left:
                    session.execute(delete(Chunk).where(Chunk.run_id == run_id, Chunk.segment_id == segment_id))
                    session.execute(delete(Segment).where(Segment.id == segment_id))

    def _before(self, session: Session, name: str, goal: Goal) -> list[tuple[int, int]]:
        """Segments (id, run id) that an import of this run began and did not finish."""
        run_id = session.scalar(select(Run.id).where(Run.uuid == goal.run))
        if run_id is None:
            return []
        keys = [(launch, place) for launch, cuts in self._runs[name].cuts.items() for place in range(len(cuts) + 1)]
        uuids = {goal.segment(name, key) for key in keys}
        query = select(Segment.id, Segment.uuid, Segment.finished_at).where(Segment.run_id == run_id)
        found = [segment for segment in session.execute(query) if segment.uuid in uuids]
        if found and all(segment.finished_at is not None for segment in found):
            self.outcomes[name].already, self.outcomes[name].run_id = True, run_id
            return []
        return [(segment.id, run_id) for segment in found]

    def _flush(self) -> None:
        if not self._waiting:
            return
        with writing(self._engine) as session:
            if self._engine.dialect.name == "sqlite":
                session.execute(text("PRAGMA shrink_memory"))  # its page cache fills up with what is only written
            for (run, key), blocks in self._waiting.items():
                self._write(session, run, key, blocks)
        self._waiting, self._points = {}, 0

    def _write(self, session: Session, run: str, key: Key, blocks: list[Block]) -> None:
        plan, goal, outcome = self._runs[run], self._goals[run], self.outcomes[run]
        if (run, key) not in self._open:
            self._open[run, key] = self._begin(session, run, key, goal)
        opened = self._open[run, key]
        metrics: dict[str, tuple[Ints, Floats]] = {}
        tokens: tuple[Ints, Floats] | None = None
        found = {
            name: _gathered(blocks, name) for name in dict.fromkeys(name for block in blocks for name in block.columns)
        }
        for name, (steps, values) in found.items():
            if name in plan.refused:
                continue
            target = plan.known.get(name)
            if target is not None and target.metric == TOKENS:
                tokens = steps + target.shift, values
            if target is None or target.metric == TOKENS:
                metrics[name] = steps, values
                continue
            if target.converts:
                metrics[name] = steps, values
            if target.minus:
                continue
            outcome.copies += len(values) if target.converts else 0
            metrics[target.metric] = steps + target.shift, converted(values, target)
        for name, target in plan.subtracted.items():
            steps, values = opened.subtractions.setdefault(name, Subtraction(target)).add(found.get(name), found)
            if len(steps):
                metrics[target.metric] = steps + target.shift, values
                outcome.copies += len(values)
        _note_steps(opened, metrics)
        times = _times(blocks)
        write_points(session, outcome.run_id, opened.id, times[0], times[1], None, metrics)
        if tokens is not None:
            write_points(session, outcome.run_id, opened.id, tokens[0], None, tokens[1], {})
        outcome.stored += sum(len(values) for name, (_, values) in found.items() if name not in plan.refused)

    def _begin(self, session: Session, run: str, key: Key, goal: Goal) -> _Open:
        plan, outcome = self._runs[run], self.outcomes[run]
        order = self._order[run] = self._order.get(run, -1) + 1
        told = plan.found.launches[key[0]].first_time
        # The launch's own time where the log tells it, so that launches stand in their order whichever comes first.
        started = (self._now if told is None else told) + order * BETWEEN_SEGMENTS
        body = SegmentBody(
            process=0,
            seq=0,
            sent_at=self._now,
            project=goal.project,
            run=goal.name,
            stage=goal.stage,
            started_at=started,
            role="reference" if goal.role == "reference" else "reproduction",
            reference=goal.reference,
            kind="import",
            tokens_per_step=goal.tokens_per_step,
            config={"imported": goal.source, "format": goal.format}
            | ({"launch": key[0]} if key[0] else {})
            | ({"launched": told} if told is not None else {})
            | ({"conversions": plan.conversions} if plan.conversions else {}),
        )
        uuid = goal.segment(run, key)
        put_segment(session, Put(uuid, body, goal.digest[:16], started, self._now))
        segment = session.execute(select(Segment.id, Segment.run_id).where(Segment.uuid == uuid)).one()
        outcome.run_id = segment.run_id
        outcome.segments.append(segment.id)
        return _Open(segment.id)

    def _finish(self) -> None:
        if not self._open:
            return
        with writing(self._engine) as session:
            for (run, _), opened in self._open.items():
                self._write_rest(session, run, opened)
                start = opened.start_step if opened.start_step < NO_LIMIT else opened.first_step
                values = {"start_step": min(start, MAX_STEP), "finished_at": time.time()}
                session.execute(update(Segment).where(Segment.id == opened.id).values(values))
        for name, outcome in self.outcomes.items():
            if outcome.segments:
                live = self._live(name, outcome)
                outcome.superseded, outcome.stored = outcome.stored - live, live

    def _write_rest(self, session: Session, run: str, opened: _Open) -> None:
        """Losses that turned out to contain nothing that the segment tells of."""
        outcome = self.outcomes[run]
        for name, subtraction in opened.subtractions.items():
            (steps, values), untold = subtraction.rest()
            target = subtraction.target
            if untold:
                outcome.untold[name] += untold
            if len(steps):
                metrics = {target.metric: (steps + target.shift, values)}
                _note_steps(opened, metrics)
                write_points(session, outcome.run_id, opened.id, np.empty(0, np.int64), None, None, metrics)
                outcome.copies += len(values)

    def _live(self, run: str, outcome: Outcome) -> int:
        """How many of the log's values that were just stored count, without copies: the store's own rule decides."""
        plan = self._runs[run]
        with reading(self._engine) as session:
            alone = session.scalar(select(func.count()).where(Segment.run_id == outcome.run_id)) == 1
            if alone and plan.found.in_order:
                return outcome.stored - sum(
                    metric.repeats
                    for name, metrics in plan.found.metrics.items()
                    if name not in plan.refused
                    for metric in metrics
                )
            copies = {target.metric for target in plan.known.values() if target.converts}
            spans = {metric: span for metric, span in self._spans(run).items() if metric not in copies}
            return sum(_count_live(session, outcome, metric, *span) for metric, span in spans.items())

    def _spans(self, run: str) -> dict[str, tuple[int, int]]:
        spans: dict[str, tuple[int, int]] = {}
        for (name, _), opened in self._open.items():
            if name == run:
                for metric, (first, last) in opened.last.items():
                    before = spans.get(metric, (first, last))
                    spans[metric] = min(before[0], first), max(before[1], last)
        return spans


def _gathered(blocks: list[Block], name: str) -> tuple[Ints, Floats]:
    holding = [block for block in blocks if name in block.columns]
    steps = np.concatenate([block.steps_of(name) for block in holding])
    return steps, np.concatenate([block.columns[name].values for block in holding])


def _count_live(session: Session, outcome: Outcome, metric: str, first: int, last: int) -> int:
    repository, count = SeriesRepository(session), 0
    width = max(STEPS_AT_ONCE, (last - first) // 64 + 1)
    for start in range(first, last + 1, width):
        read = repository.read(outcome.run_id, [metric], from_step=start, to_step=min(start + width - 1, last))
        if metric in read:
            count += int(np.isin(read[metric].segments, outcome.segments).sum())
    return count


def _note_steps(opened: _Open, metrics: Mapping[str, tuple[Ints, Floats]]) -> None:
    for metric, (steps, _) in metrics.items():
        if not len(steps):
            continue
        first, last = int(steps.min()), int(steps.max())
        before = opened.last.get(metric, (first, last))
        opened.last[metric] = min(before[0], first), max(before[1], last)
        opened.first_step = min(opened.first_step, first)
        if metric.startswith("train/"):
            opened.start_step = min(opened.start_step, max(first - 1, 0))


def _times(blocks: list[Block]) -> tuple[Ints, Floats | None]:
    timed = [(block.steps, block.times) for block in blocks if block.times is not None]
    if not timed:
        return np.empty(0, np.int64), None
    steps = np.concatenate([steps for steps, _ in timed])
    times = np.concatenate([times for _, times in timed])
    known = ~np.isnan(times)
    return steps[known], times[known]
