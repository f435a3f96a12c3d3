"""What a judging process keeps of a run follows what happens to it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select

from service.database.engine import reading
from service.database.models import Run
from service.detect.cache import LevelCache
from service.judgements.kept import KeptRuns
from service.settings import Settings
from tests.ingest.store_client import Store, create_store


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with TestClient(create_store(Settings(database_url=database_url))) as http:
        yield Store(http)


def key_of(engine: Engine, store: Store, name: str = "run") -> int:
    with reading(engine) as session:
        return session.execute(select(Run.id).where(Run.uuid == uuid.UUID(store.run(name)))).scalar_one()


def test_a_segment_that_ends_is_seen_to_have_ended(store: Store, engine: Engine) -> None:
    segment, kept = store.start(), KeptRuns()
    store.batch(segment, [1, 2], {"train/ce_loss": [3.0, 2.9]})
    run_id = key_of(engine, store)
    with reading(engine) as session:
        assert [row.finished_at for row in kept.segments(session, run_id)] == [None]
    assert store.post(segment, "finish", at=time.time()).status_code == 202
    with reading(engine) as session:
        assert [row.finished_at is None for row in kept.segments(session, run_id)] == [False]


def test_the_runs_that_were_judged_longest_ago_are_forgotten_first(store: Store, engine: Engine) -> None:
    reference, kept = LevelCache(), KeptRuns(most_bytes=3_000)
    levels: dict[str, LevelCache] = {}
    for name in ("a", "b", "a", "b"):
        segment = store.start(name)
        store.batch(segment, list(range(1, 101)), {"train/ce_loss": [1.0] * 100})
        with reading(engine) as session:
            run_id = key_of(engine, store, name)
            found = kept.series(session, run_id, list)
            assert found["train/ce_loss"].steps.tolist() == list(range(1, 101))
        own = kept.levels(run_id, reference)
        assert own is not levels.get(name)  # both do not fit: it was made anew
        assert own.levels is reference.levels
        levels[name] = own
