"""Many at once: one transaction for all, no request suffers from another, no process loses what another wrote."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, event, func, select

from service.database.engine import reading
from service.database.models import Chunk, Journal, Receipt, Run
from service.ingest import repository
from service.series import sealing
from service.series.repository import SeriesRepository
from service.settings import Settings
from service.worker.seal import seal_due, seal_run
from tests.ingest.store_client import Store, create_store


def run_ids(engine: Engine) -> list[int]:
    with reading(engine) as session:
        return list(session.scalars(select(Run.id).order_by(Run.id)))


def values_of(engine: Engine, run_id: int, name: str = "a") -> dict[int, float]:
    with reading(engine) as session:
        points = SeriesRepository(session).read(run_id, [name])[name]
        return dict(zip(points.steps.tolist(), points.values.tolist(), strict=True))


def test_eight_clients_and_a_sealer(store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second batch is sent twice, from another thread; runs are sealed all the while."""
    monkeypatch.setattr(sealing, "MOST_ROWS", 3)
    segments = [store.start(f"run-{n % 4}", kind="import") for n in range(8)]
    ended = threading.Event()

    def client(n: int) -> list[bool]:
        duplicates: list[bool] = []
        for seq in range(20):
            steps = [100 * n + seq * 3 + k for k in range(3)]
            body: dict[str, Any] = {"process": n, "seq": seq}
            sender = Store(store.http, store.project)
            for _ in range(1 + seq % 2):
                answer = sender.batch(
                    segments[n], steps, {"a": [float(step) for step in steps], f"own/{n}": [1.0] * 3}, **body
                )
                assert answer.status_code == 202, answer.text
                duplicates.append(answer.json()["duplicate"])
        return duplicates

    def sealer() -> int:
        sealed = 0
        while not ended.wait(0.002):  # a loop without a pause keeps the interpreter to itself
            sealed += seal_due(engine)
        return sealed

    with ThreadPoolExecutor(9) as pool:
        seals = pool.submit(sealer)
        clients = [pool.submit(client, n) for n in range(8)]
        try:
            duplicates = [flag for each in clients for flag in each.result()]
        finally:
            ended.set()
        assert seals.result() > 0
    assert duplicates.count(True) == 80
    found: dict[int, float] = {}
    for run_id in run_ids(engine):
        seal_run(engine, run_id)
        found |= values_of(engine, run_id)
    expected = [100 * n + k for n in range(8) for k in range(60)]
    assert found == {step: float(step) for step in expected}
    with reading(engine) as session:
        assert session.scalar(select(func.count()).select_from(Receipt)) == 160
        assert session.scalar(select(func.count()).select_from(Journal)) == 0


def test_two_processes_that_write_one_run(database_url: str, engine: Engine) -> None:
    """Each has its own caches: of metrics that the other numbers, segments that it announces, receipts."""
    with (
        TestClient(create_store(Settings(database_url=database_url))) as one,
        TestClient(create_store(Settings(database_url=database_url))) as two,
    ):
        stores = [Store(one, "p"), Store(two, "p")]
        segment = stores[0].start()
        expected: dict[str, dict[int, float]] = {}

        def work(n: int) -> int:
            accepted = 0
            for seq in range(30):
                name = f"m{seq % 7 if n else 6 - seq % 7}"
                answer = stores[n].batch(segment, [seq * 2 + n], {name: [float(n)]}, process=n, seq=seq)
                assert answer.status_code == 202, answer.text
                # The same batch is sent to both: just one of them may take it.
                both = stores[n].batch(segment, [1000 + seq], {"both": [float(seq)]}, process=7, seq=seq)
                assert both.status_code == 202, both.text
                accepted += not both.json()["duplicate"]
            return accepted

        with ThreadPoolExecutor(2) as pool:
            assert sum(pool.map(work, [0, 1])) == 30
        for n in (0, 1):
            for seq in range(30):
                name = f"m{seq % 7 if n else 6 - seq % 7}"
                expected.setdefault(name, {})[seq * 2 + n] = float(n)
        (run_id,) = run_ids(engine)
        for name, points in expected.items():
            assert values_of(engine, run_id, name) == points
        assert values_of(engine, run_id, "both") == {1000 + seq: float(seq) for seq in range(30)}
        late = stores[0].start(start_step=1010)
        assert stores[1].batch(late, [1011], {"both": [-1.0]}).status_code == 202
        assert list(values_of(engine, run_id, "both").items())[-2:] == [(1010, 10.0), (1011, -1.0)]


def test_a_request_that_cannot_be_written_leaves_its_neighbours_alone(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [store.start(f"run-{n}") for n in range(6)]
    real = repository.IngestRepository._add_batch

    def failing(self: Any, post: Any, *rest: Any) -> None:
        if post.segment == uuid.UUID(segments[3]):
            raise OverflowError("no database takes this")
        real(self, post, *rest)

    monkeypatch.setattr(repository.IngestRepository, "_add_batch", failing)
    gate = threading.Barrier(6)

    def send(n: int) -> int:
        gate.wait()
        return Store(store.http, store.project).batch(segments[n], [1], {"a": [float(n)]}, seq=0).status_code

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(send, range(6))) == [202, 202, 202, 503, 202, 202]
    monkeypatch.setattr(repository.IngestRepository, "_add_batch", real)
    assert send_again(store, segments[3]) is False
    assert [values_of(engine, run_id) for run_id in run_ids(engine)] == [{1: float(n)} for n in range(6)]


def send_again(store: Store, segment: str) -> bool:
    duplicate: bool = store.batch(segment, [1], {"a": [3.0]}, seq=0).json()["duplicate"]
    return duplicate


def test_a_crash_while_sealing_changes_nothing(store: Store, engine: Engine) -> None:
    """Whichever statement fails, the points are where they were, and the next sealing succeeds."""
    segment = store.start()
    for seq in range(3):
        store.batch(segment, [seq * 2, seq * 2 + 1], {"a": [1.0, 2.0]})
    (run_id,) = run_ids(engine)
    expected = values_of(engine, run_id)
    seen = 0
    fail_at = 0

    def break_down(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == fail_at:
            raise KeyboardInterrupt

    event.listen(engine, "before_cursor_execute", break_down)
    try:
        for fail_at in range(1, 100):  # noqa: B007  (break_down reads it)
            seen = 0
            try:
                seal_run(engine, run_id)
                break
            except KeyboardInterrupt:
                seen = -1000
                assert values_of(engine, run_id) == expected
    finally:
        event.remove(engine, "before_cursor_execute", break_down)
    assert fail_at > 5
    assert values_of(engine, run_id) == expected
    with reading(engine) as session:
        assert session.scalar(select(func.count()).select_from(Journal)) == 0
        assert session.scalar(select(func.count()).select_from(Chunk)) == 2  # the metric, and its times


def test_what_was_taken_is_written_before_the_service_stops(database_url: str, engine: Engine) -> None:
    app = create_store(Settings(database_url=database_url))
    with TestClient(app) as http:
        store = Store(http)
        segment = store.start()
        store.batch(segment, [1], {"a": [1.0]})
    assert values_of(engine, run_ids(engine)[0]) == {1: 1.0}


def test_listeners_hear_of_new_points(store: Store) -> None:
    heard: list[Any] = []
    broker = store.http.app.state.context.broker  # type: ignore[union-attr]
    broker.publish = lambda kind, body: heard.append((kind, body))
    segment = store.start()
    store.batch(segment, [4], {"a": [1.0]})
    store.batch(segment, [4], {"a": ["x"]})
    store.post(segment, "events", step=4, kind="note", value=1, at=1.0)
    told = {"project": store.project, "run": store.run(), "last_step": 4}
    wait_for(lambda: len(heard) == 2)
    assert heard == [("points", told | {"version": version}) for version in (2, 3)]


def wait_for(condition: Any) -> None:
    """A notice follows its answer at once."""
    done = threading.Event()
    for _ in range(1000):
        if condition():
            return
        done.wait(0.01)
    raise AssertionError("it did not happen")
