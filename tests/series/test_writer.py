"""Series written at once, as imports and references are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, func, select

from service.database.engine import reading, writing
from service.database.models import Chunk, Run, RunState, Segment
from service.series.repository import SeriesRepository
from service.series.writer import write_points
from service.worker.seal import seal_run
from tests.ingest.store_client import Store


def keys(engine: Engine) -> tuple[int, int]:
    with reading(engine) as session:
        return session.scalars(select(Run.id)).one(), session.scalars(select(Segment.id)).one()


def test_writes_in_parts_beside_the_journal(store: Store, engine: Engine) -> None:
    segment = store.start(kind="import")
    run_id, segment_id = keys(engine)
    rng = np.random.default_rng(0)
    values = rng.normal(size=20_000)
    steps = np.arange(1, 20_001)
    for part in (slice(0, 9000), slice(9000, 9001), slice(9001, 20_000)):
        with writing(engine) as session:
            written = write_points(
                session, run_id, segment_id, steps[part], steps[part] * 1.0, None, {"a": (steps[part], values[part])}
            )
        assert written == len(steps[part])
    store.batch(segment, [20_001], {"a": [7.0]})
    seal_run(engine, run_id)
    with reading(engine) as session:
        points = SeriesRepository(session).read(run_id, ["a"])["a"]
        assert points.steps.tolist() == list(range(1, 20_002))
        assert points.values.tolist() == [*values.tolist(), 7.0]
        assert points.tokens.tolist() == [10.0 * step for step in range(1, 20_002)]
        sizes = session.scalars(select(Chunk.points).where(Chunk.metric_id == 1).order_by(Chunk.first_step)).all()
        assert sizes == [8192, 8192, 3617]
        state = session.get_one(RunState, run_id)
        assert (state.last_step, state.last_tokens, state.data_version) == (20_001, 200_010.0, 5)
        overview = SeriesRepository(session).overview(run_id, "a", points=100)
        assert overview is not None
        assert (int(overview.count.sum()), overview.minimum.min()) == (20_001, values.min())


def test_tokens_that_came_with_the_points(store: Store, engine: Engine) -> None:
    store.start(kind="import", tokens_per_step=None)
    run_id, segment_id = keys(engine)
    steps, tokens = np.array([3, 1, 2]), np.array([30.0, np.nan, 20.0])
    with writing(engine) as session:
        write_points(
            session, run_id, segment_id, steps, None, tokens, {"a": (np.array([2, 3]), np.array([0.5, np.nan]))}
        )
    with reading(engine) as session:
        points = SeriesRepository(session).read(run_id, ["a"])["a"]
        assert points.tokens.tolist() == [20.0, 30.0]
        assert np.isnan(points.values[1])
        assert session.get_one(RunState, run_id).last_tokens == 30.0


@pytest.mark.parametrize("columns", [{"a": ([1, 2], [1.0])}, {"a": ([-1], [1.0])}])
def test_refuses_what_is_no_series(store: Store, engine: Engine, columns: dict[str, Any]) -> None:
    store.start(kind="import")
    run_id, segment_id = keys(engine)
    empty = np.empty(0, np.int64)
    arrays = {name: (np.array(steps), np.array(values)) for name, (steps, values) in columns.items()}
    with pytest.raises(ValueError, match=r"^a: "), writing(engine) as session:
        write_points(session, run_id, segment_id, empty, None, None, arrays)
    with reading(engine) as session:
        assert session.scalar(select(func.count()).select_from(Chunk)) == 0
