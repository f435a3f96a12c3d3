"""What commands judge again: a run of the database, or a log as it was known at each moment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import numpy as np
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from service.backtests.stored import NothingToJudgeError, timeline_of_run
from service.backtests.timeline import Timeline
from service.database.engine import reading
from service.database.models import Project, Run
from service.detect.inputs import RunView, Segment, Series
from service.errors import ConflictError
from service.importers.attempts import Attempt
from service.judgements.view import ReferenceCache, ReferenceView, UnknownReferenceError
from service.references.describe import description
from service.references.repository import ReferenceRepository
from service.references.shipped import install_shipped
from service.runs.repository import RunRepository


class BacktestError(RuntimeError):
    """The input cannot be judged; the message is one line."""


def of_run(engine: Engine, name: str, reference: str | None) -> Timeline:
    """A run of the database by id or name, by its live points.

    Raises:
        BacktestError: there is no such run, more than one, none of its points, or no reference.
    """
    with reading(engine) as session:
        run = find_run(session, name, "file and no run")
        try:
            return timeline_of_run(session, run, reference)
        except (UnknownReferenceError, NothingToJudgeError) as error:
            message = str(error)
            raise BacktestError(message if message.startswith(run.name) else f"{name}: {message}") from error


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


def find_run(session: Session, name: str, what: str = "run") -> Run:
    """A run by its id, or by its name where that is enough; `what` it is called where there is none.

    Raises:
        BacktestError: there is no such run, or more than one.
    """
    try:
        found = [run] if (run := RunRepository(session).by_uuid(UUID(name))) is not None else []
    except ValueError:
        found = list(session.scalars(select(Run).where(Run.name == name, Run.role == "reproduction").order_by(Run.id)))
    if not found:
        raise BacktestError(f"there is no {what} {name}; `--database-url` says where runs are looked for")
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
        expected_rows=known.rows,
        tasks=known.tasks,
        schedule=known.schedule,
        reference_items=known.items,
        recipe=known.recipe,
    )
