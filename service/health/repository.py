"""What the metrics say about the store."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.database.models import Run, RunState


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """Points that are not sealed yet, and runs by role."""

    journal_points: int
    runs: dict[str, int]


def store_counts(session: Session) -> StoreCounts:
    """Read from state tables only."""
    journal = session.scalar(select(func.coalesce(func.sum(RunState.journal_points), 0))) or 0
    runs = session.execute(select(Run.role, func.count()).group_by(Run.role)).all()
    return StoreCounts(int(journal), {role: int(count) for role, count in runs})
