"""What the audit answers, over HTTP: where repeats lie, beside another run, and what a body may hold."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from alembic import command
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Engine, MetaData, Table

from service.database.migrate import alembic_config
from service.detect.inputs import DeclaredData, RowReadings
from service.detect.same_rows import beside
from service.fingerprints.audit import repeated
from service.fingerprints.endpoints import router as audits
from service.settings import Settings
from tests.ingest.store_client import Store, create_store


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    app = create_store(Settings(database_url=database_url))
    app.include_router(audits, prefix="/api/v1")
    with TestClient(app) as http:
        yield Store(http)


def rows(store: Store, segment: str, read: list[tuple[int, int]], host: int = 0, **fields: Any) -> Any:
    """Send (step, hash) of 8 rows a step."""
    steps = [step for step, _ in read]
    body = {"kind": "rows", "host": host, "sample": 1, "steps": steps, "hashes": [f"{h:016x}" for _, h in read]}
    return store.post(segment, "fingerprints", **{**body, "seen": [[min(steps), max(steps), 8]], **fields})


def audit(store: Store, run: str = "run", **query: str) -> Any:
    answer = store.http.get(f"/api/v1/runs/{store.run(run)}/audit", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_where_repeats_lie(store: Store) -> None:
    segment = store.start(data={"rows": 1000, "epochs": 1})
    rows(store, segment, [(1, 5), (1, 5), (2, 6), (3, 7), (4, 5), (5, 6)])
    rows(store, segment, [(2, 6)], host=1)
    found = audit(store)["rows"]
    assert (found["readings"], found["repeats"], found["within_batch"], found["across_hosts"]) == (7, 4, 1, 1)
    assert found["distances"] == [{"steps": 0, "repeats": 2}, {"steps": 3, "repeats": 2}]
    assert found["over_time"] == [
        {"first_step": step, "last_step": step, "readings": n, "repeats": again}
        for step, n, again in [(1, 2, 1), (2, 2, 1), (3, 1, 0), (4, 1, 1), (5, 1, 1)]
    ]
    assert found["coverage"] == pytest.approx(0.003)


def test_what_came_back_behind_a_restart(store: Store) -> None:
    first = store.start(started_at=1000.0)
    rows(store, first, [(step, step) for step in range(1, 21)])
    second = store.start(started_at=2000.0, start_step=10)
    rows(store, second, [(step, step - 10) for step in range(11, 21)])
    found = audit(store)["rows"]
    assert found["restarts"] == [{"restart": 10, "readings": 10, "returned": 10, "lag": 10, "hits": 10}]
    third = store.start(started_at=3000.0, start_step=10)  # the steps run again, as they should
    rows(store, third, [(step, step) for step in range(11, 21)])
    found = audit(store)["rows"]
    assert (found["repeats"], found["restarts"][0]["returned"]) == (0, 0)


def test_the_same_rows_as_another_run(store: Store) -> None:
    expected = [(step, 100 * step + k) for step in range(1, 31) for k in range(2)]
    rows(store, store.start("expected"), expected)
    mine = store.start()
    rows(store, mine, [(s, h) for s, h in expected if h % 2 == 0])
    rows(store, mine, [(s, h if s < 21 else h + 50) for s, h in expected if h % 2], host=1)  # other hosts, same batches
    assert audit(store)["same_rows"] is None
    against = store.run("expected")
    found = audit(store, against=against)["same_rows"]
    assert found.pop("summary").startswith("The run no longer reads the rows of expected at the same steps, but other")
    assert found == {
        "run": against, "name": "expected", "sample": 1, "steps": 30, "told": 30, "compared": 60, "same": 50,
        "through": 20, "differs": 21, "wrong_steps": 10, "since": [21, 21], "relation": "other rows", "shift": 0,
        "steady": 0.5, "known": 0.5, "looked": 20,
    }  # fmt: skip
    unknown = store.http.get(f"/api/v1/runs/{store.run()}/audit", params={"against": store.run("nobody")})
    assert unknown.status_code == 404


def test_what_was_not_sent_is_said(store: Store) -> None:
    segment = store.start()
    assert audit(store)["rows"] is None
    rows(store, segment, [(1, 5), (9, 6)], seen=[[1, 1, 8], [9, 9, 8]])
    said = " ".join(audit(store)["unseen"])
    for part in ("7 of 9 steps were not reported", "No windows", "No held-out set", "not declared"):
        assert part in said
    window: dict[str, Any] = {
        "kind": "windows",
        "hashes": [f"{2**40:016x}"],
        "steps": [1],
        "sample": 2**20,
        "seen": [[1, 9, 8]],
    }
    hit: dict[str, Any] = {
        "kind": "heldout_hits",
        "set": "c4",
        "windows": 90,
        "hashes": [f"{5:016x}"],
        "counts": [7],
        "sample": 64,
    }
    assert rows(store, segment, [(1, 5)], **window).status_code == 202
    assert rows(store, segment, [(1, 5)], **hit).status_code == 202
    found = audit(store)
    assert (found["windows"]["readings"], found["windows"]["coverage"]) == (1, None)
    (met,) = found["heldout"]
    assert (met["set"], met["rate"], met["windows"]) == ("c4", 64, 90)
    assert (met["rows_with_text"], met["rows_with_passage"], met["windows_met"]) == (1, 1, 7)
    assert "No windows" not in " ".join(found["unseen"])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "windows", "sample": 2**20, "hashes": [f"{2**44:016x}"]}, "hashes[0]"),
        ({"kind": "heldout_hits", "sample": 64, "set": "c4", "hashes": [f"{2**58:016x}"]}, "hashes[0]"),
        ({"kind": "heldout_hits", "sample": 64, "hashes": [f"{2:016x}"]}, "set"),
        ({"kind": "heldout_hits", "sample": 64, "hashes": [f"{2:016x}"], "set": "a\0b"}, "set"),
        ({"kind": "heldout_hits", "sample": 64, "hashes": [f"{2:016x}"], "set": "c4", "counts": [1, 2]}, "counts"),
        ({"kind": "heldout_hits", "sample": 64, "hashes": [f"{2:016x}"], "set": "c4", "counts": [0]}, "counts[0]"),
        ({"kind": "rows", "set": "c4"}, "set"),
        ({"kind": "windows", "counts": [1]}, "counts"),
        ({"kind": "rows", "windows": 3}, "windows"),
        ({"kind": "words"}, "kind"),
    ],
)
def test_a_body_that_cannot_be(store: Store, fields: dict[str, Any], field: str) -> None:
    answer = rows(store, store.start(), [(1, 5)], **fields)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_filled_database_goes_up_with_all_it_holds(engine: Engine) -> None:
    command.downgrade(alembic_config(engine), "0004")
    filled: dict[str, dict[str, Any]] = {}
    with engine.begin() as connection:
        for name in ("project", "run", "segment", "fingerprint"):
            table = Table(name, MetaData(), autoload_with=connection)
            filled[name] = {column.name: a_value_of(column) for column in table.columns if not column.nullable}
            connection.execute(table.insert(), filled[name])
    command.upgrade(alembic_config(engine), "head")
    with engine.connect() as connection:
        (row,) = connection.execute(Table("fingerprint", MetaData(), autoload_with=connection).select()).mappings()
    before = filled["fingerprint"]
    assert {column: value for column, value in row.items() if column in before} == before
    assert (row["windows"], row["counts"]) == (None, None)


def a_value_of(column: Column[Any]) -> object:
    python: type[object] = column.type.python_type
    known: dict[type[object], object] = {
        int: 1, float: 1.0, str: "1", bytes: b"1", bool: True, uuid.UUID: uuid.UUID(int=1)
    }  # fmt: skip
    return known.get(python, {})  # JSON may hold anything


readings = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 5)), max_size=25).map(sorted)


def as_readings(read: list[tuple[int, int, int]], sample: int = 1) -> RowReadings:
    array = np.array(read, np.int64).reshape(-1, 3)
    return RowReadings(
        array[:, 0], array[:, 1], (array[:, 2] * sample).astype(np.uint64), sample, np.arange(10), np.full(10, 4)
    )


@given(readings)
def test_every_repeat_is_counted_where_it_belongs(read: list[tuple[int, int, int]]) -> None:
    found = repeated(as_readings(read), None)
    last: dict[int, tuple[int, int]] = {}
    distances: dict[int, int] = {}
    within = across = 0
    for step, host, value in read:
        if value in last:
            before, other = last[value]
            distances[step - before] = distances.get(step - before, 0) + 1
            within += step == before and host == other
            across += step == before and host != other
        last[value] = (step, host)
    assert (found.within_batch, found.across_hosts, dict(found.distances)) == (within, across, distances)
    assert sum(b.readings for b in found.bins) == len(read)
    assert sum(b.repeats for b in found.bins) == sum(distances.values())


def test_planned_passes_are_no_repeats() -> None:
    read = [(step, 0, step % 5) for step in range(10)]  # rows are read again from step 5 on; 20 are declared
    assert sum(n for _, n in repeated(as_readings(read), DeclaredData(20, 2.0)).distances) == 0
    assert sum(n for _, n in repeated(as_readings(read), DeclaredData(40, 2.0)).distances) == 4  # 40 are read at step 9


@given(readings, readings, st.sampled_from([1, 2, 3]))
def test_two_runs_beside_each_other(one: list[Any], two: list[Any], sample: int) -> None:
    found = beside(as_readings(one), as_readings(two, sample))
    mine = [sorted(v for s, _, v in one if s == step and v % sample == 0) for step in range(10)]
    theirs = [sorted(v * sample for s, _, v in two if s == step) for step in range(10)]
    differ = [step for step in range(10) if mine[step] != theirs[step]]
    assert found.differs == (differ[0] if differ else None)
    assert found.through == ((differ[0] - 1 if differ[0] else None) if differ else 9)
    assert (found.sample, found.steps, found.compared) == (sample, 10, sum(map(len, mine)))
