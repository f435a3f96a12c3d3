"""The timeline of a run in the database."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sqlalchemy.orm import Session

from service.backtests.then import stands, view_then
from service.backtests.timeline import Timeline
from service.database.models import Run
from service.detect.inputs import RunView
from service.judgements.view import ReferenceCache, build_view
from service.recovery.reading import checkpoints, position


class NothingToJudgeError(LookupError):
    """The run has no points that a rule looks at; the message is one line."""


def timeline_of_run(session: Session, run: Run, reference: str | None = None) -> Timeline:
    """A run as it grew, superseded parts included, with the settings and deviations that count for it now.

    `reference` names another published run to compare with.

    Raises:
        UnknownReferenceError: it, or the run's own, is not installed.
        NothingToJudgeError: the run has no points that a rule looks at.
    """
    view = build_view(session, run) if reference is None else _beside(session, run, reference)
    steps = np.concatenate([s.steps for s in view.metrics.values()] or [np.zeros(0, np.int64)])
    if len(steps) == 0:
        raise NothingToJudgeError(f"{run.name}: the run has no train or held-out loss")
    views, spans = [view], [(int(steps.min()), int(steps.max()))]
    parts, notes = stands(session, run), list[str]()
    if len(parts) > 1:
        views = [*(view_then(session, run, view, part) for part in parts[:-1]), view]
        spans = [*((part.first, part.last) for part in parts[:-1]), (parts[-1].first, spans[0][1])]
        times = f"{len(parts) - 1} time{'s' if len(parts) > 2 else ''}"
        notes = [f"the training went back {times}; each part is judged with what was live then"]
    title = f"{run.name} beside {view.reference_name} {view.reference_version}"
    _, pace = position(session, run)
    return Timeline(title, views, spans, notes, checkpoints=checkpoints(session, run), pace=pace)


def _beside(session: Session, run: Run, reference: str) -> RunView:
    known = ReferenceCache().get(session, reference, run.stage)
    stored = Run(id=run.id, project_id=run.project_id, reference=reference, stage=run.stage, data=run.data)
    return replace(build_view(session, stored), reference_version=known.version)
