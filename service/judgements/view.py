"""Puts together what the rules look at: a run's live series and rows beside its reference."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from sqlalchemy.orm import Session

from service.database.models import Reference, Run
from service.database.models import Segment as SegmentRow
from service.detect.gaps import LevelCache
from service.detect.inputs import DeclaredData, RowReadings, RunView, Segment, Series, Tolerance
from service.fingerprints.repository import FingerprintRepository
from service.references.describe import description, primary_heldout, stage, tasks, tolerances
from service.references.repository import ReferenceRepository
from service.references.schedule import learning_rate
from service.runs.repository import RunRepository
from service.series.repository import SeriesRepository

TRAIN = "train/ce_loss"
JUDGED = frozenset(
    (TRAIN, "optim/learning_rate", "optim/grad_norm", "optim/skipped", "throughput/tokens_per_second_per_device")
)
SCHEDULE_POINTS = 4_000  # places at which a reference's schedule is worked out
CACHED_REFERENCES = 8  # stages of references kept in memory; the largest shipped one holds some thousand points


class UnknownReferenceError(LookupError):
    """The run names a reference that is not installed; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ReferenceView:
    """One stage of one reference version, read once per process. `levels` is what the rules keep between judgements."""

    slug: str
    version: str
    metrics: Mapping[str, Series]
    siblings: tuple[Mapping[str, Series], ...]
    tolerances: Mapping[str, Tolerance]
    heldout: str
    tasks: Mapping[str, int]
    schedule: Series | None
    levels: LevelCache = field(default_factory=LevelCache)


class ReferenceCache:
    """The references in use; a version never changes, so nothing in here grows old. Any thread may use it."""

    def __init__(self, size: int = CACHED_REFERENCES) -> None:
        self._size = size
        self._held: OrderedDict[tuple[int, str, str], ReferenceView] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, session: Session, slug: str, stage: str) -> ReferenceView:
        """The newest version of a reference.

        Raises:
            UnknownReferenceError: there is none with this slug.
        """
        reference = ReferenceRepository(session).current(slug)
        if reference is None:
            raise UnknownReferenceError(
                f"no reference named {slug} is installed; `pacenote reference list` shows which are"
            )
        key = (reference.id, reference.digest, stage)
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                return held
        view = _read_reference(session, reference, stage)
        with self._lock:
            self._held[key] = view
            while len(self._held) > self._size:
                self._held.popitem(last=False)
        return view


_references = ReferenceCache()


def reference_view(session: Session, run: Run) -> ReferenceView:
    """What a run is compared with, out of this process's cache.

    Raises:
        UnknownReferenceError: the run names no reference, or none that is installed.
    """
    if not run.reference:
        raise UnknownReferenceError("the run names no reference; start it with reference=…")
    return _references.get(session, run.reference, run.stage)


def build_view(session: Session, run: Run) -> RunView:
    """Everything known about a run now, for `service.detect.engine.evaluate`.

    Raises:
        UnknownReferenceError: the run names no reference, or none that is installed.
    """
    reference = reference_view(session, run)
    rows = FingerprintRepository(session).rows(run.id)
    return RunView(
        metrics=_read_series(session, run.id),
        reference=reference.metrics,
        tolerances=reference.tolerances,
        segments=_segments(RunRepository(session).live_segments(run.id), rows),
        reference_name=reference.slug,
        reference_version=reference.version,
        heldout=reference.heldout,
        siblings=reference.siblings,
        rows=rows,
        data=declared_data(run),
        tasks=reference.tasks,
        schedule=reference.schedule,
    )


def judged_metrics(names: Iterable[str]) -> list[str]:
    """The metrics that rules look at: train loss, held-out losses, accuracies, and what the trainer says of itself."""
    ends = (("heldout/", "/ce_loss"), ("downstream/", "/accuracy"))
    return [n for n in names if n in JUDGED or any(n.startswith(first) and n.endswith(last) for first, last in ends)]


def declared_data(run: Run) -> DeclaredData | None:
    """What the trainer said it would read, None if it said nothing that can be used."""
    rows, epochs = (run.data or {}).get("rows"), (run.data or {}).get("epochs")
    if not isinstance(rows, int) or rows <= 0:
        return None
    return DeclaredData(rows, float(epochs) if isinstance(epochs, int | float) and epochs > 0 else 1.0)


def _read_series(session: Session, run_id: int) -> dict[str, Series]:
    repository = SeriesRepository(session)
    points = repository.read(run_id, judged_metrics(repository.names(run_id)))
    return {name: Series(read.steps, read.tokens, read.values) for name, read in points.items() if len(read.steps)}


def _read_reference(session: Session, reference: Reference, name: str) -> ReferenceView:
    repository = ReferenceRepository(session)
    curve = repository.run_of(reference.id, name)
    return ReferenceView(
        slug=reference.slug,
        version=reference.version,
        metrics=_read_series(session, curve.id) if curve else {},
        siblings=tuple(_read_series(session, run.id) for run in repository.siblings(reference.id, name)),
        tolerances=tolerances(reference),
        heldout=primary_heldout(reference),
        tasks={task.key: task.items for task in tasks(reference)},
        schedule=_schedule(reference, name),
    )


def _schedule(reference: Reference, name: str) -> Series | None:
    """The learning rate that the reference's formulas give over a stage, None if it has none."""
    entry, pieces = stage(reference, name), description(reference).schedule
    if entry is None:
        return None
    starts = [at for piece in pieces if piece.stage == name for at in (piece.from_step, piece.warmup_steps)]
    knots = [at for start in starts for at in (start - 1, start) if 0 <= at <= entry.steps]
    even = np.linspace(0, entry.steps, min(entry.steps + 1, SCHEDULE_POINTS)).round()
    steps = np.unique(np.concatenate((even, np.asarray(knots, np.float64)))).astype(np.int64)
    values = learning_rate(pieces, name, steps)
    if values is None:
        return None
    tokens = entry.token_offset + steps.astype(np.float64) * float(entry.tokens_per_step)
    return Series(steps, tokens, values)


def _segments(rows: Iterable[SegmentRow], readings: RowReadings | None) -> list[Segment]:
    """Live trainer starts. Hosts: the largest of what is declared and what has reported rows."""
    reported = 0 if readings is None else len(np.unique(readings.hosts))
    return [
        Segment(row.start_step, row.started_at, max(_declared_hosts(row), reported, 1))
        for row in rows
        if row.kind != "evaluator"
    ]


def _declared_hosts(row: SegmentRow) -> int:
    data: Any = row.config.get("data")
    shards: Any = cast("dict[str, Any]", data).get("shards") if isinstance(data, dict) else None
    declared: list[Any] = [row.topology.get("hosts"), shards]
    return max((count for count in declared if isinstance(count, int)), default=0)
