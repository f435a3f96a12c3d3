"""How far a run's data has come, and the numbers of its metrics. Written under one lock per run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Table, bindparam, insert, select, update
from sqlalchemy.orm import Session

from service.database.models import Metric, RunState

_METRIC: Table = Metric.__table__  # pyright: ignore[reportAssignmentType]
_STATE: Table = RunState.__table__  # pyright: ignore[reportAssignmentType]
_ADVANCE = (
    update(_STATE)
    .where(_STATE.c.run_id == bindparam("run"))
    .values(
        data_version=bindparam("version"),
        last_data_at=bindparam("at"),
        last_step=bindparam("step"),
        last_tokens=bindparam("tokens"),
        journal_points=_STATE.c.journal_points + bindparam("points"),
        journal_steps=_STATE.c.journal_steps + bindparam("steps"),
        journal_rows=_STATE.c.journal_rows + bindparam("rows"),
    )
)


@dataclass(slots=True)
class State:
    """One run's state while its lock is held. `points`, `steps` and `rows` are what the journal gains or loses."""

    run_id: int
    data_version: int
    last_data_at: float | None
    last_step: int | None
    last_tokens: float | None
    points: int = 0
    steps: int = 0
    rows: int = 0


def lock_states(session: Session, run_ids: Iterable[int]) -> dict[int, State]:
    """Lock the states of runs, in one order for all processes, so that they never wait for each other in a circle."""
    query = (
        select(RunState.run_id, RunState.data_version, RunState.last_data_at, RunState.last_step, RunState.last_tokens)
        .where(RunState.run_id.in_(set(run_ids)))
        .order_by(RunState.run_id)
        .with_for_update()
    )
    return {row[0]: State(*row) for row in session.execute(query)}


def save_states(session: Session, states: Iterable[State]) -> None:
    """Write changed states back."""
    rows = [
        {
            "run": state.run_id,
            "version": state.data_version,
            "at": state.last_data_at,
            "step": state.last_step,
            "tokens": state.last_tokens,
            "points": state.points,
            "steps": state.steps,
            "rows": state.rows,
        }
        for state in states
    ]
    if rows:
        session.connection().execute(_ADVANCE, rows)


def metric_ids(session: Session, run_id: int) -> dict[str, int]:
    """Name -> number of the run's metrics."""
    rows = session.execute(select(Metric.name, Metric.id).where(Metric.run_id == run_id))
    return {name: metric_id for name, metric_id in rows}


def number_metrics(session: Session, run_id: int, known: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Give the names that have none their numbers, from 1 on. The run's state must be locked."""
    new = [name for name in dict.fromkeys(names) if name not in known]
    first = max(known.values(), default=0) + 1
    numbers = {name: number for number, name in enumerate(new, first)}
    if numbers:
        rows = [{"run_id": run_id, "id": number, "name": name} for name, number in numbers.items()]
        session.connection().execute(insert(_METRIC), rows)
    return numbers
