"""From the journal to chunks, inside one transaction."""

from __future__ import annotations

from sqlalchemy import delete, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from service.database.models import Journal, RunState, RunWork
from service.series.chunks import CHUNK_POINTS
from service.series.journal import decode
from service.series.state import lock_states, save_states
from service.series.writer import append

MOST_ROWS = 1024  # readers unpack journal rows one by one
IDLE_SECONDS = 60.0
MOST_BYTES_AT_ONCE = 16 * 1024 * 1024  # who ingests on SQLite waits meanwhile
SEAL = "seal"


def runs_to_seal(session: Session, now: float) -> list[int]:
    """Runs whose journal is long, or has been left alone for a minute."""
    return list(
        session.scalars(
            select(RunState.run_id)
            .where(RunState.journal_rows > 0)
            .where(
                or_(
                    RunState.journal_steps >= CHUNK_POINTS,
                    RunState.journal_rows >= MOST_ROWS,
                    RunState.last_data_at < now - IDLE_SECONDS,
                )
            )
            .order_by(RunState.run_id)
        )
    )


def claim(session: Session, run_id: int) -> bool:
    """Take the run's seal task until the transaction ends; False if another process has it."""
    dialect = postgresql if session.connection().dialect.name == "postgresql" else sqlite
    session.execute(dialect.insert(RunWork).values(run_id=run_id, task=SEAL, done_version=0).on_conflict_do_nothing())
    query = select(RunWork.run_id).where(RunWork.run_id == run_id, RunWork.task == SEAL)
    return session.scalar(query.with_for_update(skip_locked=True)) is not None


def seal_rows(session: Session, run_id: int, now: float) -> tuple[int, bool]:
    """Move the oldest journal rows of a claimed run into chunks. Returns their number, and whether some were left."""
    rows = session.execute(
        select(Journal.id, Journal.segment_id, Journal.steps, Journal.points, Journal.payload)
        .where(Journal.run_id == run_id)
        .order_by(Journal.id)
        .execution_options(yield_per=64)
    )
    taken: list[tuple[int, bytes]] = []
    last_id = steps = points = size = 0
    for row_id, segment_id, row_steps, row_points, payload in rows:
        last_id = row_id
        taken.append((segment_id, payload))
        steps += row_steps
        points += row_points
        size += len(payload)
        if size >= MOST_BYTES_AT_ONCE:
            break
    rows.close()
    if not taken:
        return 0, False
    append(session, run_id, decode(taken))
    session.execute(
        delete(Journal).where(Journal.run_id == run_id, Journal.id <= last_id),
        execution_options={"synchronize_session": False},
    )
    state = lock_states(session.connection(), [run_id])[run_id]  # last: who ingests waits for it
    state.points, state.steps, state.rows = -points, -steps, -len(taken)
    save_states(session.connection(), [state])
    work = session.get_one(RunWork, (run_id, SEAL))
    work.done_version, work.done_at = state.data_version, now
    session.flush()
    return len(taken), size >= MOST_BYTES_AT_ONCE
