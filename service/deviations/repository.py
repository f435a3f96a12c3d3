"""Declared deviations of a run, and how the rules see them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.database.models import DeclaredDeviation, Run, RunState
from service.detect.inputs import Deviation, Ints
from service.series.repository import SeriesRepository

TIME = "axis/time"


class DeviationRepository:
    """Declared deviations by run. They are ended, never deleted: what was explained away stays known."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def of_run(self, run_id: int) -> list[DeclaredDeviation]:
        """Those of a run, in the order in which they were declared."""
        found = select(DeclaredDeviation).where(DeclaredDeviation.run_id == run_id).order_by(DeclaredDeviation.id)
        return list(self.session.scalars(found))

    def one(self, run_id: int, uuid: UUID) -> DeclaredDeviation | None:
        """The deviation of a run with this public id, locked until the transaction ends."""
        found = select(DeclaredDeviation).where(DeclaredDeviation.run_id == run_id, DeclaredDeviation.uuid == uuid)
        return self.session.scalars(found.with_for_update()).one_or_none()

    def judged(self, run: Run) -> list[Deviation]:
        """What the rules take into account. An end by date becomes the last step that was logged by then."""
        rows = self.of_run(run.id)
        state = self.session.get(RunState, run.id) if any(row.end_at is not None for row in rows) else None
        newest = state.last_data_at if state is not None else None
        steps, times = np.zeros(0, np.int64), np.zeros(0)
        if newest is not None and any(row.end_at is not None and row.end_at < newest for row in rows):
            read = SeriesRepository(self.session).read(run.id, [TIME]).get(TIME)
            if read is not None:
                steps, times = read.steps, read.values
        return [_seen(row, steps, times) for row in rows]


def _seen(row: DeclaredDeviation, steps: Ints, times: Sequence[float] | np.ndarray) -> Deviation:
    ends = [row.end_step] if row.end_step is not None else []
    if row.end_at is not None and len(steps) and bool((np.asarray(times) > row.end_at).any()):
        by_then = steps[np.asarray(times) <= row.end_at]
        ends.append(int(by_then.max()) if len(by_then) else 0)
    return Deviation(
        text=row.description,
        item=row.item,
        budgets={metric: float(budget) for metric, budget in row.budgets.items()},
        from_step=row.from_step,
        from_tokens=row.from_tokens,
        end_step=min(ends, default=None),
        end_tokens=row.end_tokens,
        by=row.declared_by,
    )
