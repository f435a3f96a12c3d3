"""Writes chunks: what is sealed from the journal, and what imports bring at once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Table, delete, func, insert, select, tuple_
from sqlalchemy.orm import Session

from service.database.models import Chunk, RunState
from service.series.chunks import CHUNK_POINTS, pack, unpack
from service.series.journal import TIME, TOKENS, Lane
from service.series.lineage import lineage
from service.series.live import TokenAxis
from service.series.state import State, lock_states, metric_ids, number_metrics, save_states

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_CHUNK: Table = Chunk.__table__  # pyright: ignore[reportAssignmentType]
_ROWS_AT_ONCE = 500


def write_points(
    session: Session,
    run_id: int,
    segment_id: int,
    steps: Ints,
    times: Floats | None,
    tokens: Floats | None,
    metrics: Mapping[str, tuple[Ints, Floats]],
) -> int:
    """Write series of one segment straight into chunks, inside the session's transaction. Returns the number of points.

    `metrics` maps names to (steps int64 (m,), values float64 (m,)) in order of arrival, each metric with its own steps.
    `times` (unix seconds) and `tokens` (cumulative within the stage; NaN: not given) are parallel to `steps` (n,),
    which may be empty. Without `tokens` they follow from the segment's plan.

    Raises:
        ValueError: arrays of unequal length, or a step below 0.
    """
    lanes: dict[Lane, tuple[Ints, Floats]] = {}
    if times is not None:
        lanes[segment_id, None, TIME] = _column("times", steps, times)
    if tokens is not None:
        given = ~np.isnan(tokens)
        lanes[segment_id, None, TOKENS] = _column("tokens", steps[given], tokens[given])
    columns = {name: _column(name, *column) for name, column in metrics.items()}
    state = _locked(session, run_id)
    known = metric_ids(session.connection(), run_id)
    known |= number_metrics(
        session.connection(), run_id, known, (name for name, column in columns.items() if len(column[0]))
    )
    for name, column in columns.items():
        if len(column[0]):
            lanes[segment_id, None, known[name]] = column
    append(session, run_id, lanes)
    _advance(session, state, segment_id, [at for at, _ in lanes.values() if len(at)], tokens)
    save_states(session.connection(), [state])
    return sum(len(column[0]) for column in columns.values())


def _column(name: str, steps: Ints, values: Floats) -> tuple[Ints, Floats]:
    steps, values = np.asarray(steps, np.int64), np.asarray(values, np.float64)
    if steps.shape != values.shape or steps.ndim != 1:
        raise ValueError(f"{name}: {steps.shape} steps for {values.shape} values")
    if len(steps) and int(steps.min()) < 0:
        raise ValueError(f"{name}: a step below 0")
    return steps, values


def _locked(session: Session, run_id: int) -> State:
    if session.get(RunState, run_id) is None:
        session.add(RunState(run_id=run_id))
        session.flush()
    return lock_states(session.connection(), [run_id])[run_id]


def _advance(session: Session, state: State, segment_id: int, stepped: Sequence[Ints], tokens: Floats | None) -> None:
    state.data_version += 1
    state.last_data_at = time.time()
    last = max((int(steps.max()) for steps in stepped), default=-1)
    if last <= (-1 if state.last_step is None else state.last_step):
        return
    state.last_step = last
    if tokens is not None and len(tokens) and not np.isnan(tokens).all():
        reached = float(np.nanmax(tokens))
    else:
        segments = lineage(session, state.run_id).segments
        reached = float(TokenAxis(segments).of(np.array([last], np.int64), segment_id)[0])
    state.last_tokens = None if np.isnan(reached) else reached


def append(session: Session, run_id: int, lanes: Mapping[Lane, tuple[Ints, Floats]]) -> None:
    """Add points of lanes, in order of arrival. The last chunk of a lane is filled up before a new one begins."""
    filled = {lane: points for lane, points in lanes.items() if len(points[0])}
    if not filled:
        return
    metrics = sorted({metric for _, _, metric in filled})
    open_chunks = _open_chunks(session, run_id, metrics)
    numbers = _last_numbers(session, run_id, metrics)
    rows: list[dict[str, Any]] = []
    for (segment_id, weights_id, metric), (steps, values) in filled.items():
        if (segment_id, weights_id, metric) in open_chunks:
            before = open_chunks[segment_id, weights_id, metric]
            steps, values = np.concatenate([before[0], steps]), np.concatenate([before[1], values])
        for chunk in pack(steps, values):
            numbers[metric] = numbers.get(metric, 0) + 1
            row = {
                "run_id": run_id,
                "metric_id": metric,
                "number": numbers[metric],
                "segment_id": segment_id,
                "weights_segment_id": weights_id,
            }
            rows.append(row | asdict(chunk))
    _remove(session, run_id, [(lane[2], open_chunks[lane][2]) for lane in filled if lane in open_chunks])
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        session.connection().execute(insert(_CHUNK), rows[start : start + _ROWS_AT_ONCE])


def _open_chunks(session: Session, run_id: int, metrics: Sequence[int]) -> dict[Lane, tuple[Ints, Floats, int]]:
    """Lane -> steps, values and number of its chunk that is not full."""
    found: dict[Lane, tuple[Ints, Floats, int]] = {}
    query = select(
        Chunk.segment_id,
        Chunk.weights_segment_id,
        Chunk.metric_id,
        Chunk.number,
        Chunk.points,
        Chunk.steps,
        Chunk.values,
    ).where(Chunk.run_id == run_id, Chunk.metric_id.in_(metrics), Chunk.points < CHUNK_POINTS)
    for segment_id, weights_id, metric, number, points, steps, values in session.execute(query):
        found[segment_id, weights_id, metric] = (*unpack([(points, steps, values)]), number)
    return found


def _last_numbers(session: Session, run_id: int, metrics: Sequence[int]) -> dict[int, int]:
    query = (
        select(Chunk.metric_id, func.max(Chunk.number))
        .where(Chunk.run_id == run_id, Chunk.metric_id.in_(metrics))
        .group_by(Chunk.metric_id)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def _remove(session: Session, run_id: int, chunks: Sequence[tuple[int, int]]) -> None:
    for start in range(0, len(chunks), _ROWS_AT_ONCE):
        keys = chunks[start : start + _ROWS_AT_ONCE]
        session.execute(
            delete(Chunk).where(Chunk.run_id == run_id, tuple_(Chunk.metric_id, Chunk.number).in_(keys)),
            execution_options={"synchronize_session": False},
        )
