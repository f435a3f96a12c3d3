"""How far a run's data has come, and the numbers of its metrics. Written under one lock per run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Table, bindparam, insert, select, update

from service.database.models import Metric, RunState

_METRIC: Table = Metric.__table__  # pyright: ignore[reportAssignmentType]
_STATE: Table = RunState.__table__  # pyright: ignore[reportAssignmentType]

# Statements are built once: building them costs as much as running them.
_LOCK = (
    select(_STATE.c.run_id, _STATE.c.data_version, _STATE.c.last_data_at, _STATE.c.last_step, _STATE.c.last_tokens)
    .where(_STATE.c.run_id.in_(bindparam("runs", expanding=True)))
    .order_by(_STATE.c.run_id)
    .with_for_update()
)
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


def lock_states(connection: Connection, run_ids: Iterable[int]) -> dict[int, State]:
    """Lock the states of runs, in one order for all processes, so that they never wait for each other in a circle."""
    return {row[0]: State(*row) for row in connection.execute(_LOCK, {"runs": list(set(run_ids))})}


def save_states(connection: Connection, states: Iterable[State]) -> None:
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
        connection.execute(_ADVANCE, rows)


def metric_ids(connection: Connection, run_id: int) -> dict[str, int]:
    """Name -> number of the run's metrics."""
    rows = connection.execute(select(_METRIC.c.name, _METRIC.c.id).where(_METRIC.c.run_id == run_id))
    return {row.name: row.id for row in rows}


def number_metrics(
    connection: Connection, run_id: int, known: Mapping[str, int], names: Iterable[str]
) -> dict[str, int]:
    """Give the names that have none their numbers, from 1 on. The run's state must be locked."""
    new = [name for name in dict.fromkeys(names) if name not in known]
    first = max(known.values(), default=0) + 1
    numbers = {name: number for number, name in enumerate(new, first)}
    if numbers:
        rows = [{"run_id": run_id, "id": number, "name": name} for name, number in numbers.items()]
        connection.execute(insert(_METRIC), rows)
    return numbers
