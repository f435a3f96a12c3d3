"""Puts together what the rules look at: a run's live series and rows beside its reference."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from service.database.models import Reference, Run
from service.database.models import Segment as SegmentRow
from service.detect.facts import Arrivals, Items, Recipe
from service.detect.gaps import LevelCache
from service.detect.inputs import RowReadings, RunView, Series, Tolerance
from service.detect.rules.data_stopped import FRESH
from service.deviations.repository import DeviationRepository
from service.fingerprints.repository import FingerprintRepository
from service.judgements.beside import declared_data, items_of, read_beside, recipe_of, same_order, trainer_starts
from service.judgements.kept import KeptRuns
from service.references.describe import description, primary_heldout, stage, tasks, tolerances
from service.references.repository import ReferenceRepository
from service.references.schedule import learning_rate
from service.rules.effective import settings_of
from service.rules.reading import settings_in_force
from service.runs.repository import RunRepository
from service.series.repository import SeriesRepository

TRAIN = "train/ce_loss"
TIME = "axis/time"
NEWEST_TIMES = 2_000  # steps whose times say how long pauses usually are
JUDGED = frozenset(
    (
        TRAIN,
        "train/scored_tokens",
        "optim/learning_rate",
        "optim/grad_norm",
        "optim/skipped",
        "parity/kl",
        "throughput/tokens_per_second_per_device",
    )
)
SCHEDULE_POINTS = 4_000  # places at which a reference's schedule is worked out
CACHED_REFERENCES = 8  # stages of references kept in memory; the largest shipped one holds some thousand points


# Built once: building it costs as much as running it.
_NEWEST = (
    select(Reference.id, Reference.digest)
    .where(Reference.slug == bindparam("slug"))
    .order_by(Reference.id.desc())
    .limit(1)
)  # fmt: skip


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
    recipe: Recipe = field(default_factory=Recipe)
    items: Mapping[str, Sequence[Items]] = field(default_factory=dict[str, Sequence[Items]])
    rows: RowReadings | None = None
    levels: LevelCache = field(default_factory=LevelCache)


@dataclass(frozen=True, slots=True)
class Clock:
    """The service's time (unix seconds), and since when it has been listening for data."""

    now: float
    heard_since: float


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
        newest = session.connection().execute(_NEWEST, {"slug": slug}).first()
        if newest is None:
            raise UnknownReferenceError(
                f"no reference named {slug} is installed; `pacenote reference list` shows which are"
            )
        key = (int(newest[0]), str(newest[1]), stage)
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                return held
        view = _read_reference(session, session.get_one(Reference, key[0]), stage)
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


def build_view(
    session: Session,
    run: Run,
    kept: KeptRuns | None = None,
    clock: Clock | None = None,
    reference: ReferenceView | None = None,
) -> RunView:
    """Everything known about a run now, for `service.detect.engine.evaluate`. With `kept` only what is new is read;
    with `clock` it is judged live: whether data still come is then known. `reference`: its, where that was read.

    Raises:
        UnknownReferenceError: the run names no reference, or none that is installed.
    """
    reference = reference or reference_view(session, run)
    if kept is None:
        rows, windows = (FingerprintRepository(session).rows(run.id, kind) for kind in ("rows", "windows"))
        metrics, launches = _read_series(session, run.id), RunRepository(session).live_segments(run.id)
        beside = read_beside(session, run.id)
    else:
        rows, windows = kept.rows(session, run.id), kept.windows(session, run.id)
        metrics, launches = kept.series(session, run.id, judged_metrics), kept.segments(session, run.id)
        beside = kept.beside(session, run.id)
    if kept is None:
        starts = trainer_starts(launches, rows)
        settings, deviations = settings_of(settings_in_force(session, run)), DeviationRepository(session).judged(run)
    else:
        starts = kept.starts(run.id, launches, rows)
        said = kept.said(session, run)
        settings, deviations = said.judged, said.deviations
    configs: list[Mapping[str, Any]] = [launch.config for launch in launches if launch.kind != "evaluator"]
    config: Mapping[str, Any] = configs[-1] if configs else dict[str, Any]()
    data = declared_data(run.data, config)
    return RunView(
        metrics=metrics,
        reference=reference.metrics,
        tolerances=reference.tolerances,
        segments=starts,
        reference_name=reference.slug,
        reference_version=reference.version,
        heldout=reference.heldout,
        siblings=reference.siblings,
        rows=rows,
        windows=windows,
        data=data,
        expected_rows=reference.rows,
        tasks=reference.tasks,
        schedule=reference.schedule,
        same_order_declared=same_order(reference.recipe, config, data),
        arrivals=None if clock is None else _arrivals(session, run.id, clock, launches),
        happenings=beside.happenings,
        eval_sets=beside.eval_sets,
        items=beside.items,
        reference_items=reference.items,
        heldout_hits=beside.heldout_hits,
        recipe=reference.recipe,
        settings=settings,
        deviations=deviations,
    )


def judged_metrics(names: Iterable[str]) -> list[str]:
    """The metrics that rules look at: train loss, held-out losses, accuracies, and what the trainer says of itself."""
    ends = (("heldout/", "/ce_loss"), ("downstream/", "/accuracy"))
    return [n for n in names if n in JUDGED or any(n.startswith(first) and n.endswith(last) for first, last in ends)]


def _arrivals(session: Session, run_id: int, clock: Clock, launches: Sequence[SegmentRow]) -> Arrivals | None:
    state = RunRepository(session).state(run_id)
    if state is None or state.last_data_at is None:
        return None
    trainers = [launch for launch in launches if launch.kind == "trainer"]
    ended = not trainers or trainers[-1].finished_at is not None
    times = np.zeros(0)
    if not ended and clock.now - state.last_data_at > FRESH:
        first = max((state.last_step or 0) - NEWEST_TIMES, 0)
        read = SeriesRepository(session).read(run_id, [TIME], from_step=first).get(TIME)
        times = times if read is None else np.sort(read.values)
    return Arrivals(clock.now, state.last_data_at, clock.heard_since, times, ended)


def _read_series(session: Session, run_id: int) -> dict[str, Series]:
    repository = SeriesRepository(session)
    points = repository.read(run_id, judged_metrics(repository.names(run_id)))
    return {name: Series(read.steps, read.tokens, read.values) for name, read in points.items() if len(read.steps)}


def _read_reference(session: Session, reference: Reference, name: str) -> ReferenceView:
    repository = ReferenceRepository(session)
    curve = repository.run_of(reference.id, name)
    metrics = _read_series(session, curve.id) if curve else {}
    starts = RunRepository(session).live_segments(curve.id) if curve else []
    return ReferenceView(
        slug=reference.slug,
        version=reference.version,
        metrics=metrics,
        siblings=tuple(_read_series(session, run.id) for run in repository.siblings(reference.id, name)),
        tolerances=tolerances(reference),
        heldout=primary_heldout(reference),
        tasks={task.key: task.items for task in tasks(reference)},
        schedule=_schedule(reference, name),
        recipe=recipe_of(description(reference), name, metrics.get(TRAIN), starts),
        items=items_of(RunRepository(session).live_items(curve.id)) if curve else {},
        rows=FingerprintRepository(session).rows(curve.id) if curve else None,
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
