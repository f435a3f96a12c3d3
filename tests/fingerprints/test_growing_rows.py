"""Fingerprints that are kept between readings are those that are stored."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from service.database.engine import reading
from service.database.models import Run
from service.detect.inputs import RowReadings
from service.fingerprints import repository
from service.fingerprints.growing import GrowingRows
from service.fingerprints.repository import FingerprintRepository
from service.series.lineage import lineage
from service.settings import Settings
from service.worker.seal import seal_run
from tests.ingest.store_client import Store, create_store


@pytest.fixture
def http(database_url: str) -> Iterator[TestClient]:
    with TestClient(create_store(Settings(database_url=database_url))) as client:
        yield client


sending = st.tuples(
    st.just("send"),
    st.integers(0, 2),  # host
    st.lists(st.tuples(st.integers(-2, 3), st.sampled_from([12, 24, 36, 48])), max_size=5),  # steps from the newest on
    st.sampled_from([1, 1, 1, 2]),  # sample
    st.booleans(),  # late: from the first step on
)
script = st.lists(
    st.one_of(sending, sending, sending, st.tuples(st.just("restart"), st.integers(0, 8)), st.just(("seal",))),
    max_size=20,
)


def as_lists(rows: RowReadings | None) -> Any:
    if rows is None:
        return None
    arrays = (rows.steps, rows.hosts, rows.hashes, rows.seen_steps, rows.seen_rows)
    return rows.sample, [(array.dtype, array.tolist()) for array in arrays]


@pytest.mark.parametrize("kind", ["rows", "windows"])
@given(operations=script)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reading_on_is_reading_anew(http: TestClient, engine: Engine, operations: list[Any], kind: str) -> None:
    store, kept, newest, starts = Store(http), GrowingRows(kind), 3, 0
    started = time.time() - 1000.0
    segment = store.start(started_at=started)
    with reading(engine) as session:
        run_id = session.execute(select(Run.id).where(Run.uuid == uuid.UUID(store.run()))).scalar_one()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(repository, "MOST_SENDINGS", 2)
        for operation in operations:
            if operation[0] == "restart":
                starts += 1
                segment = store.start(start_step=max(newest - operation[1], 0), started_at=started + starts)
            elif operation[0] == "seal":
                store.batch(segment, [newest], {"loss": [1.0]})
                seal_run(engine, run_id)
            else:
                _, host, rows, sample, late = operation
                base = 2 if late else newest
                steps = [base + step for step, _ in rows]
                if kind == "windows":  # those beyond 24 << 54 are chosen at 1 in 16, not at 1 in 32
                    sample = {1: 16, 2: 32}[sample]
                    rows = [(step, value << 54) for step, value in rows if sample == 16 or value <= 24]
                    steps = [base + step for step, _ in rows]
                hashes = [f"{value:016x}" for _, value in rows]
                seen = [[min([base, *steps]), max([base, *steps]), 8]]
                body = {"kind": kind, "host": host, "sample": sample, "steps": steps, "hashes": hashes, "seen": seen}
                assert store.post(segment, "fingerprints", **body).status_code == 202
                newest = max(newest, *steps, 0)
            with reading(engine) as session:
                stored = FingerprintRepository(session).rows(run_id, kind)
                assert as_lists(kept.read(session, lineage(session, run_id))) == as_lists(stored)
