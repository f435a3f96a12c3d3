"""Stores the curves of a bundle: one run per stage, one import segment per launch of the published run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from uuid import UUID, uuid5

import numpy as np
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.database.models import Fingerprint, Run, RunState, Segment
from service.fingerprints.hashes import pack
from service.ingest.segments import ensure_project, ensure_run, run_uuid
from service.references.bundle import Launch, StageSeries
from service.references.data_order import ExpectedRows
from service.references.description import Description, Stage
from service.references.series_file import Curve
from service.series.packing import compress
from service.series.writer import write_points


def run_name(description: Description, sibling: str) -> str:
    """Name of the run that holds a curve; the version is part of it, so that versions stand beside each other."""
    base = f"{description.slug}@{description.version}"
    return f"{base}/{sibling}" if sibling else base


def install_series(session: Session, description: Description, series: StageSeries) -> Run:
    """Store one stage's curves, of the reference or of a sibling. Overlaps are kept, the later launch wins."""
    stage = description.stage(series.stage)
    assert stage is not None  # load_bundle has checked it
    name = run_name(description, series.sibling)
    project, now = description.project or description.slug, time.time()
    run_id = ensure_run(
        session,
        ensure_project(session, project, now),
        run_uuid(project, name, stage.name),
        {"name": name, "stage": stage.name, "role": "reference", "token_offset": stage.token_offset},
        now,
    )
    run = session.get_one(Run, run_id)
    last_step = max(
        _install_segment(session, run, stage, order, launch, series.curves[launch.segment])
        for order, launch in enumerate(series.launches, 1)
    )
    session.execute(  # a published run has no last data: its numbers are as old as the publication
        update(RunState)
        .where(RunState.run_id == run.id)
        .values(last_data_at=None, last_tokens=float(last_step * stage.tokens_per_step))
    )
    return run


def install_rows(session: Session, run: Run, expected: ExpectedRows) -> None:
    """Store the rows that a stage should be read with as those that its reference's run has read."""
    first = select(Segment.id).where(Segment.run_id == run.id).order_by(Segment.started_at, Segment.id).limit(1)
    session.add(
        Fingerprint(
            run_id=run.id, segment_id=session.scalars(first).one(), kind="rows", host=0, sample=expected.sample,
            points=len(expected.steps), steps=compress(expected.steps), hashes=pack("rows", expected.hashes),
            seen=np.array(expected.seen, np.int64).tobytes(),
        )
    )  # fmt: skip


def _install_segment(
    session: Session, run: Run, stage: Stage, order: int, launch: Launch, curves: Mapping[str, Curve]
) -> int:
    """Returns the segment's last step."""
    first = min(int(curve.steps[0]) for curve in curves.values())
    start_step = max(first - 1, 0)
    segment = Segment(
        uuid=_segment_uuid(run.uuid, launch.segment),
        run_id=run.id,
        kind="import",
        start_step=start_step,
        start_tokens=float(start_step * stage.tokens_per_step),
        tokens_per_step=stage.tokens_per_step,
        topology={},
        config={"segment": launch.segment} | ({"note": launch.note} if launch.note else {}),
        versions={},
        started_at=float(order) if launch.launched is None else launch.launched,
        digest=b"",
    )
    session.add(segment)
    session.flush()
    none = np.empty(0, np.int64)  # times are not published, tokens follow from the segment
    last = 0
    for metric, curve in curves.items():  # one at a time: a whole history is larger than memory
        last = max(last, int(curve.steps[-1]))
        write_points(session, run.id, segment.id, none, None, None, {metric: (curve.steps, curve.values)})
    return last


def _segment_uuid(run: UUID, segment: str) -> UUID:
    return uuid5(run, segment)
