"""What a judgement has seen beside points: the newest segment and setting, and whether the run was rewound since."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from service.database.models import JudgementRow, Run, RunWork, Segment
from service.runs.repository import RunRepository
from service.series.live import AWAITED

_SEGMENT = select(func.max(Segment.id)).where(Segment.run_id == bindparam("run"), Segment.kind != AWAITED)


@dataclass(frozen=True, slots=True)
class Seen:
    """Keys of the newest segment and change of settings; `rewound` says what superseded a judged part of the run since
    it was judged last, None if nothing did."""

    segment: int
    change: int
    rewound: str | None
    done_version: int = 0  # of the data that the run's last judgement saw


def look(session: Session, run: Run, change: int, work: RunWork | None, newest: int | None = None) -> Seen:
    """What is there now, beside what the run's last judgement saw, as its `work` says. `change`: the newest change of
    how it is judged; `newest`: key of its newest segment, where that is known."""
    if newest is None:
        newest = session.connection().execute(_SEGMENT, {"run": run.id}).scalar() or 0
    before = work.done_segment if work is not None else None
    rewound = _rewound(session, run.id, before) if before is not None and newest > before else None
    return Seen(newest, change, rewound, 0 if work is None else work.done_version)


def _rewound(session: Session, run_id: int, before: int) -> str | None:
    judged = select(func.max(JudgementRow.at_step)).where(JudgementRow.run_id == run_id)
    judged_to = session.scalar(judged) or 0
    rows = RunRepository(session).segments(run_id)
    cut = {row.live_to_step for row in rows if row.segment.id <= before}
    back = [
        row.segment
        for row in rows
        if row.segment.id > before
        and row.segment.kind == "trainer"
        and row.segment.start_step < judged_to
        and row.segment.start_step in cut
    ]
    if not back:
        return None
    deepest = min(back, key=lambda segment: segment.start_step)
    return f"superseded from step {deepest.start_step:,} by segment {deepest.uuid}"
