"""Row fingerprints: what counts as one reading, what is superseded, and that joining sendings changes no answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select

from service.database.engine import reading
from service.database.models import Fingerprint, Run
from service.detect.inputs import RowReadings
from service.fingerprints import repository
from service.fingerprints.readings import Reading, combine, merge
from service.fingerprints.repository import FingerprintRepository
from service.settings import Settings
from service.worker.seal import seal_run
from tests.ingest.store_client import Store, create_store


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with TestClient(create_store(Settings(database_url=database_url))) as http:
        yield Store(http)


sendings = st.lists(
    st.tuples(
        st.integers(0, 2),  # host
        st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0, 4, 8, 12, 2**64 - 4])), max_size=6),
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 9)), max_size=3),
        st.sampled_from([3, 100]),  # limit
        st.sampled_from([1, 2, 4]),
    ),
    min_size=1,
    max_size=6,
)


def as_reading(sent: Any) -> Reading:
    host, rows, seen, limit, sample = sent
    steps = np.array([step for step, _ in rows], np.int64)
    hashes = np.array([value for _, value in rows], np.uint64)
    runs = np.array([(first, first + more, count) for first, more, count in seen], np.int64).reshape(-1, 3)
    return Reading(host, sample, steps, hashes, runs, limit)


@given(sendings)
def test_counts_as_the_rules_read_out_loud(sent: list[Any]) -> None:
    times: dict[tuple[int, int, int], int] = {}
    rows_seen: dict[int, dict[int, int]] = {}
    for host, rows, seen, limit, _ in sent:
        for key, count in Counter((step, host, value) for step, value in rows if step <= limit).items():
            times[key] = max(times.get(key, 0), count)
        for first, more, count in seen:
            for step in range(first, min(first + more, limit) + 1):
                at = rows_seen.setdefault(step, {})
                at[host] = max(at.get(host, 0), count)
    found = combine([as_reading(each) for each in sent])
    assert found is not None
    assert found.sample == max(sample for *_, sample in sent)
    assert list(zip(found.steps.tolist(), found.hosts.tolist(), found.hashes.tolist(), strict=True)) == sorted(
        key for key, count in times.items() for _ in range(count)
    )
    assert found.seen_steps.tolist() == sorted(rows_seen)
    assert found.seen_rows.tolist() == [sum(rows_seen[step].values()) for step in sorted(rows_seen)]


@given(sendings, st.integers(0, 6))
def test_joining_some_sendings_changes_nothing(sent: list[Any], cut: int) -> None:
    same = [as_reading((0, rows, seen, 100, 4)) for _, rows, seen, *_ in sent]
    joined = [Reading(0, 4, *merge(same[:cut]), 100)] if same[:cut] else []
    assert listed(combine(joined + same[cut:])) == listed(combine(same))


def listed(found: RowReadings | None) -> Any:
    assert found is not None
    arrays = (found.steps, found.hosts, found.hashes, found.seen_steps, found.seen_rows)
    return [found.sample, *(array.tolist() for array in arrays)]


def test_only_hashes_that_all_samples_hold_are_compared() -> None:
    coarse = as_reading((0, [(1, 12)], [], 100, 4))
    fine = as_reading((0, [(2, 12), (2, 6)], [], 100, 6))
    found = combine([coarse, fine])
    assert found is not None
    assert (found.sample, found.steps.tolist(), found.hashes.tolist()) == (12, [1, 2], [12, 12])
    assert combine([]) is None


def test_over_http(store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    first = store.start(started_at=now - 20)

    def send(segment: str, host: int, rows: list[tuple[int, int]], **fields: Any) -> Any:
        steps = [step for step, _ in rows]
        body = {
            "kind": "rows",
            "host": host,
            "sample": 1,
            "steps": steps,
            "hashes": [f"{value:016x}" for _, value in rows],
        }
        span = [[min(steps), max(steps), 8]]
        answer = store.http.post(
            f"/api/v1/segments/{segment}/fingerprints", json={"sent_at": now, "seen": span, **body, **fields}
        )
        assert answer.status_code == 202, answer.text
        return answer.json()

    twice = [(1, 2**64 - 1), (1, 2**64 - 1), (2, 5), (3, 6)]
    assert send(first, 0, twice, process=0, seq=0) == {"accepted": 4, "duplicate": False}
    assert send(first, 0, twice, process=0, seq=0) == {"accepted": 4, "duplicate": True}
    send(first, 0, [(2, 5)], process=1, seq=0)  # another process fed the same shard: one reading
    send(first, 1, [(2, 5)], process=2, seq=0)
    second = store.start(started_at=now - 10, start_step=2)
    send(second, 0, [(3, 7)], process=0, seq=0)
    expected = [(1, 0, 2**64 - 1), (1, 0, 2**64 - 1), (2, 0, 5), (2, 1, 5), (3, 0, 7)]
    with reading(engine) as session:
        run_id = session.scalars(select(Run.id)).one()
    monkeypatch.setattr(repository, "MOST_SENDINGS", 1)
    for rows in (4, 3):
        with reading(engine) as session:
            found = FingerprintRepository(session).rows(run_id)
            assert session.scalar(select(func.count()).select_from(Fingerprint)) == rows
        assert found is not None
        assert list(zip(found.steps.tolist(), found.hosts.tolist(), found.hashes.tolist(), strict=True)) == expected
        assert (found.sample, found.hashes.dtype) == (1, np.uint64)
        assert dict(zip(found.seen_steps.tolist(), found.seen_rows.tolist(), strict=True)) == {1: 8, 2: 16, 3: 8}
        seal_run(engine, run_id)
    with reading(engine) as session:
        assert FingerprintRepository(session).rows(run_id + 1) is None
