"""What a judging process keeps of a run follows what happens to it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select

from service.database.engine import reading
from service.database.models import Run
from service.detect.cache import LevelCache
from service.detect.engine import evaluate
from service.detect.inputs import RunView
from service.detect.judgement import Judgement
from service.judgements.kept import IN_TURN, KeptRuns
from service.judgements.view import judged_metrics
from service.settings import Settings
from tests.ingest.store_client import Store, create_store, wire


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


def test_what_finds_no_room_pushes_out_none_that_is_judged_in_turn(store: Store, engine: Engine) -> None:
    reference, kept = LevelCache(), KeptRuns(most_bytes=3_000)
    levels: dict[str, LevelCache] = {}
    for name in ("a", "b", "a", "b"):
        segment = store.start(name)
        store.batch(segment, list(range(1, 101)), {"train/ce_loss": [1.0] * 100})
        own = judged_once(engine, store, kept, name, reference)
        assert (own is levels.get(name)) == (name in levels and name == "a")
        assert own.levels is reference.levels
        levels[name] = own
    assert [kept.knows(key_of(engine, store, name)) for name in ("a", "b")] == [True, False]


def test_a_run_that_is_judged_no_more_makes_room(store: Store, engine: Engine) -> None:
    reference, kept = LevelCache(), KeptRuns(most_bytes=3_000)
    for name in ("a", "b"):
        store.batch(store.start(name), list(range(1, 101)), {"train/ce_loss": [1.0] * 100})
    judged_once(engine, store, kept, "a", reference)
    turns = 0
    while not kept.knows(key_of(engine, store, "b")):
        judged_once(engine, store, kept, "b", reference)
        turns += 1
    assert turns <= 2 * IN_TURN
    assert not kept.knows(key_of(engine, store, "a"))


def judged_once(engine: Engine, store: Store, kept: KeptRuns, name: str, reference: LevelCache) -> LevelCache:
    run_id = key_of(engine, store, name)
    with reading(engine) as session:
        found = kept.series(session, run_id, list)
        assert found["train/ce_loss"].steps.tolist() == list(range(1, 101))
    return kept.levels(run_id, reference)


def test_a_run_that_was_forgotten_is_judged_the_same(store: Store, engine: Engine) -> None:
    reference, small, large = LevelCache(), KeptRuns(most_bytes=3_000), KeptRuns()
    segments = {name: store.start(name) for name in ("a", "b")}
    rng = np.random.default_rng(0)
    known: list[bool] = []
    for turn in range(4):
        for name, segment in segments.items():
            steps = list(range(turn * 60 + 1, turn * 60 + 61))
            losses = rng.normal(3.0, 0.1, 60).tolist()
            losses[7] = float("nan") if name == "b" and turn == 1 else losses[7]
            store.batch(segment, steps, {"train/ce_loss": wire(losses)})
            run_id = key_of(engine, store, name)
            known.append(small.knows(run_id))
            said = [judged(engine, run_id, kept, reference) for kept in (small, large, KeptRuns())]
            assert repr(said[0]) == repr(said[1]) == repr(said[2])
    assert known == [False, False] + [True, False] * 3  # both do not fit: the first one stays


def judged(engine: Engine, run_id: int, kept: KeptRuns, reference: LevelCache) -> list[Judgement]:
    with reading(engine) as session:
        rows, launches = kept.rows(session, run_id), kept.segments(session, run_id)
        view = RunView(
            kept.series(session, run_id, judged_metrics), {}, {}, kept.starts(run_id, launches, rows), rows=rows
        )
        return evaluate(view, kept.levels(run_id, reference))
