"""What `pacenote backtest` does: puts a run together as it was known at each moment, and asks the rules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import numpy as np
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from service.database.engine import reading
from service.database.models import Project, Run
from service.detect.inputs import RunView, Segment, Series
from service.detect.judgement import Judgement
from service.detect.replay import judge_prefixes
from service.errors import ConflictError
from service.importers.attempts import Attempt
from service.judgements.view import ReferenceCache, ReferenceView, UnknownReferenceError, build_view
from service.references.describe import description
from service.references.repository import ReferenceRepository
from service.references.shipped import install_shipped
from service.runs.repository import RunRepository

LOOKS = 200


class BacktestError(RuntimeError):
    """The input cannot be judged; the message is one line."""


@dataclass(frozen=True, slots=True)
class Look:
    """A moment: the newest step, and of which of the timeline's views."""

    step: int
    view: int


@dataclass(slots=True)
class Timeline:
    """A run as it grew: one view per trainer start of a log (what was live while it ran), one in all for a stored run.
    `spans` holds each view's first and last step of its own."""

    title: str
    views: list[RunView]
    spans: list[tuple[int, int]]
    notes: list[str] = field(default_factory=list[str])
    looks: list[Look] = field(default_factory=list[Look])


@dataclass(frozen=True, slots=True)
class Said:
    """An answer that differs from the one `before` (at `before_step`; None: the first), or a rule's `last`."""

    step: int
    judgement: Judgement
    before: Judgement | None
    before_step: int
    last: bool


def of_run(engine: Engine, name: str, reference: str | None) -> Timeline:
    """A run of the database by id or name, by its live points.

    Raises:
        BacktestError: there is no such run, more than one, none of its points, or no reference.
    """
    with reading(engine) as session:
        run = _run(session, name)
        try:
            if reference is None:
                view = build_view(session, run)
            else:
                known = _reference(session, reference, run.stage)
                stored = Run(id=run.id, reference=reference, stage=run.stage, data=run.data)
                view = replace(build_view(session, stored), reference_version=known.version)
        except UnknownReferenceError as error:
            raise BacktestError(f"{name}: {error}") from error
        superseded = sum(row.live_to_step is not None for row in RunRepository(session).segments(run.id))
    steps = np.concatenate([s.steps for s in view.metrics.values()] or [np.zeros(0, np.int64)])
    if len(steps) == 0:
        raise BacktestError(f"{name}: the run has no train or held-out loss")
    notes = [f"{superseded} starts were superseded by a later one; only live points are judged"] if superseded else []
    title = f"{run.name} beside {view.reference_name} {view.reference_version}"
    return Timeline(title, [view], [(int(steps.min()), int(steps.max()))], notes)


def of_log(
    engine: Engine,
    file: Path,
    reference: str | None,
    stage: str | None,
    tokens_per_step: int | None,
    mapping: Sequence[str],
) -> Timeline:
    """A log in any known format, each trainer start with what was live then.

    Raises:
        BacktestError: no reference was named, or it is not there.
        LogError: the log cannot be read.
    """
    from service.cli.replay import chosen_names
    from service.cli.replaying import read_recording

    if reference is None:
        raise BacktestError("a log needs --reference: the published run to compare with")
    recording = read_recording(file, chosen_names(list(mapping)))
    with suppress(ConflictError):  # what is installed counts
        install_shipped(engine)
    with reading(engine) as session:
        row = ReferenceRepository(session).current(reference)
        stages = description(row).stages if row is not None else []
        found = next((s for s in stages if stage is None or s.name == stage), None)
        if row is not None and found is None:
            raise BacktestError(f"{reference} has no stage {stage}; it has {', '.join(s.name for s in stages)}")
        known = _reference(session, reference, found.name if found is not None else "")
    assert found is not None
    per_step = tokens_per_step or found.tokens_per_step
    views: list[RunView] = []
    spans: list[tuple[int, int]] = []
    live: dict[str, dict[int, float]] = {}
    starts: list[Segment] = []
    for i, attempt in enumerate(recording.attempts):
        live = _superseding(live, attempt)
        starts = [*(s for s in starts if s.start_step < attempt.start_step), Segment(attempt.start_step, float(i), 1)]
        views.append(_view(known, live, starts, per_step, float(found.token_offset)))
        spans.append((min(attempt.points), max(attempt.points)))
    times = f"{len(views) - 1} time{'s' if len(views) > 2 else ''}"
    notes = [f"the training went back {times}; each start is judged with what was live then"] if len(views) > 1 else []
    return Timeline(f"{file.name} beside {known.slug} {known.version}", views, spans, notes)


def told(timeline: Timeline, every: int | None, rules: Sequence[str] | None, *, show: bool) -> list[Said]:
    """Every change of an answer in order of time, then the last answer of each rule."""
    from rich.console import Console

    span = sum(last - first + 1 for first, last in timeline.spans)
    every = every or max(1, span // LOOKS)
    said: list[Said] = []
    newest: dict[str, tuple[int, Judgement]] = {}
    status = Console(stderr=True).status("judging …") if show else nullcontext()
    with status:
        for i, (view, (first, last)) in enumerate(zip(timeline.views, timeline.spans, strict=True)):
            steps = [*range(max(first + every - 1, 1), last, every), last]
            timeline.looks += [Look(step, i) for step in steps]
            for step, judgements in zip(steps, judge_prefixes(view, steps), strict=True):
                for judgement in judgements:
                    if rules and judgement.rule not in rules:
                        continue
                    before_step, before = newest.get(judgement.rule, (0, None))
                    newest[judgement.rule] = (step, judgement)
                    if before is None or before.state != judgement.state:
                        said.append(Said(step, judgement, before, before_step, last=False))
    said += [Said(step, judgement, None, 0, last=True) for step, judgement in newest.values()]
    return said


def _run(session: Session, name: str) -> Run:
    try:
        found = [run] if (run := RunRepository(session).by_uuid(UUID(name))) is not None else []
    except ValueError:
        found = list(session.scalars(select(Run).where(Run.name == name, Run.role == "reproduction").order_by(Run.id)))
    if not found:
        raise BacktestError(f"there is no file and no run {name}; `--database-url` says where runs are looked for")
    if len(found) > 1:
        places = ", ".join(f"{session.get_one(Project, r.project_id).slug}/{r.stage} {r.uuid}" for r in found)
        raise BacktestError(f"{len(found)} runs are named {name}; give the id of one: {places}")
    return found[0]


def _reference(session: Session, slug: str, stage: str) -> ReferenceView:
    try:
        return ReferenceCache().get(session, slug, stage)
    except UnknownReferenceError as error:
        raise BacktestError(str(error)) from error


def _superseding(live: dict[str, dict[int, float]], attempt: Attempt) -> dict[str, dict[int, float]]:
    """What is live once a new start has begun: older points up to it, and its own."""
    kept = {m: {s: v for s, v in points.items() if s <= attempt.start_step} for m, points in live.items()}
    for step, values in attempt.points.items():
        for metric, value in values.items():
            kept.setdefault(metric, {})[step] = value
    return kept


def _view(
    known: ReferenceView, live: dict[str, dict[int, float]], starts: Sequence[Segment], per_step: float, offset: float
) -> RunView:
    metrics: dict[str, Series] = {}
    for metric, points in live.items():
        if points:
            steps = np.array(sorted(points), np.int64)
            tokens = np.array([offset + per_step * int(step) for step in steps], np.float64)
            metrics[metric] = Series(steps, tokens, np.array([points[int(step)] for step in steps], np.float64))
    return RunView(
        metrics=metrics,
        reference=known.metrics,
        tolerances=known.tolerances,
        segments=list(starts),
        reference_name=known.slug,
        reference_version=known.version,
        heldout=known.heldout,
        siblings=known.siblings,
        tasks=known.tasks,
    )
