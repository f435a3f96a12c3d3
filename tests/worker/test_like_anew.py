"""Whatever comes in whatever order, through the whole service: what a process has said that judged all along, many runs
at once, is what is said by one that reads everything from the store."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judged_world import TRAIN, JudgedWorld
from sqlalchemy import Engine, select

from service.database.engine import reading, writing
from service.database.models import RuleSetting, Run
from service.detect.engine import evaluate
from service.detect.rules import data_stopped
from service.judgements.bodies import to_body
from service.judgements.view import build_view
from service.rules.repository import Scope, SettingRepository
from service.settings import Settings
from service.worker import judge as judging
from service.worker.seal import seal_run
from tests.ingest.store_client import Store, create_store, wire

HELD = "heldout/lab/ce_loss"
FIRST = 620  # steps that every run begins with: more than are looked at one by one
NAMES = ("a", "b", "c")

which = st.sampled_from(NAMES)
operation = st.one_of(
    st.tuples(st.just("more"), which, st.sampled_from([1, 3, 49, 130]), st.sampled_from([0.0, -0.6])),
    st.tuples(st.just("more"), which, st.sampled_from([1, 7]), st.just(0.0)),
    st.tuples(st.just("late"), which, st.integers(0, 60), st.sampled_from([2.0, float("nan")])),
    st.tuples(st.just("held"), which, st.integers(0, 60)),
    st.tuples(st.just("rows"), which, st.integers(1, 60), st.booleans()),
    st.tuples(st.just("restart"), which, st.integers(0, 300)),
    st.tuples(st.just("event"), which),
    st.tuples(st.just("seal"), which),
    st.tuples(st.just("finish"), which),
    st.tuples(st.just("setting"), which, st.booleans(), st.sampled_from([0.01, 0.5])),
)


@dataclass
class Live:
    """One run: its hook, and where it stands."""

    name: str
    segment: str
    last: int = 0
    start: float = 0.0
    seen: int = 0


class World:
    """Runs of one project that send to a real ingest, judged by one process."""

    def __init__(self, engine: Engine, http: TestClient) -> None:
        self.judged = JudgedWorld(engine)
        self.engine, self.store = engine, Store(http)
        self.rng = np.random.default_rng(3)
        self.began = time.time() - 5_000.0
        self.judge = self.judged.judge(None)
        self.runs = {name: Live(name, self.start(name, 0, 0)) for name in NAMES}
        for run in self.runs.values():
            self.more(run, FIRST, 0.0)
            self.rows(run, 60, again=False)

    def start(self, name: str, step: int, number: int) -> str:
        return self.store.start(name, reference="lab", start_step=step, started_at=self.began + number)

    def key(self, name: str) -> int:
        with reading(self.engine) as session:
            return session.execute(select(Run.id).where(Run.uuid == uuid.UUID(self.store.run(name)))).scalar_one()

    def act(self, what: str, name: str, *how: Any) -> None:
        run = self.runs[name]
        if what in ("more", "rows"):
            getattr(self, what)(run, *how)
        elif what == "late":
            self.store.batch(run.segment, [max(run.last - how[0], 1)], {TRAIN: [how[1]]})
        elif what == "held":
            self.store.batch(run.segment, [max(run.last - how[0], 0)], {HELD: [3.0]})
        elif what == "restart":
            run.last, run.start = max(run.last - how[0], 0), run.start + 1.0
            run.segment = self.start(name, run.last, int(run.start))
        elif what == "event":
            self.store.post(run.segment, "events", step=run.last, kind="note", value="hm", at=time.time())
        elif what == "seal":
            seal_run(self.engine, self.key(name))
        elif what == "finish":
            self.store.post(run.segment, "finish", at=time.time())
        elif what == "setting":
            self.set(None if how[0] else self.key(name), how[1])

    def more(self, run: Live, count: int, shift: float) -> None:
        steps = list(range(run.last + 1, run.last + count + 1))
        losses = 3.0 + shift + self.rng.normal(0.0, 0.05, count)
        self.store.batch(run.segment, steps, {TRAIN: wire(losses.tolist()), "optim/grad_norm": [1.0] * count})
        run.last += count

    def rows(self, run: Live, count: int, again: bool) -> None:
        steps = list(range(max(run.last - count, 0) + 1, run.last + 1))
        hashes = [7 + step % 5 if again else int(self.rng.integers(2**60)) for step in steps]
        told = [f"{one:016x}" for one in hashes]
        seen = [[steps[0], steps[-1], 4]] if steps else []
        self.store.post(run.segment, "fingerprints", kind="rows", host=0, sample=1, steps=steps, hashes=told, seen=seen)

    def set(self, run: int | None, tolerance: float) -> None:
        with writing(self.engine) as session:
            project = session.get_one(Run, self.key("a")).project_id
            scope, changes = Scope(project, run), SettingRepository(session)
            row = changes.one(scope, "train_drift") or RuleSetting(project_id=project, run_id=run, rule="train_drift")
            session.add(row)
            row.tolerance, row.set_by, row.reason, row.set_at = tolerance, "Ann", "", 1.0
            session.flush()
            changes.record(scope, "rule", "train_drift", by="Ann", reason="", at=1.0, old=None, new={})

    def said(self, name: str) -> dict[str, Any]:
        rows = self.judged.judgements(self.key(name))
        return {rule: row.body for rule, row in rows.items() if rule != data_stopped.RULE}

    def anew(self, name: str) -> dict[str, Any]:
        with reading(self.engine) as session:
            said = evaluate(build_view(session, session.get_one(Run, self.key(name))))
        return {one.rule: to_body(one) for one in said if one.rule != data_stopped.RULE}


@pytest.fixture
def http(database_url: str) -> Iterator[TestClient]:
    with TestClient(create_store(Settings(database_url=database_url))) as client:
        yield client


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_INTERVAL", "INTERVAL", "REST"):
        monkeypatch.setattr(judging, name, 0.0)


@pytest.fixture
def world(engine: Engine, http: TestClient, no_rest: None) -> World:
    return World(engine, http)


@given(st.lists(st.lists(operation, min_size=1, max_size=4), min_size=2, max_size=5))
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_was_kept_changes_nothing_that_is_said(world: World, turns: list[list[Any]]) -> None:
    for operations in turns:  # one world goes on from example to example
        for operation in operations:
            world.act(*operation)
        world.judge.judge_due()
        for name in NAMES:
            assert world.said(name) == world.anew(name), (name, operations)
