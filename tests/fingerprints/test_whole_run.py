"""A whole run of 724 million rows: what its fingerprints take in the database, and that they can still be read."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, func, select

from service.database.engine import reading, writing
from service.database.models import Fingerprint, Segment
from service.fingerprints.answers import audit_of
from service.fingerprints.hashes import pack
from service.runs.repository import RunRepository
from service.series.packing import compress
from service.settings import Settings
from tests.ingest.store_client import Store, create_store

ROWS, PER_STEP, LENGTH, SAMPLE, HOSTS = 724_000_000, 512, 8192, 1024, 64
STEPS = ROWS // PER_STEP
MOST_BYTES = 16 * 10**6


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with TestClient(create_store(Settings(database_url=database_url))) as http:
        yield Store(http)


def test_it_fits_and_is_read(store: Store, engine: Engine) -> None:
    rng = np.random.default_rng(0)
    segment = store.start(data={"rows": ROWS, "epochs": 1})
    each = ROWS // SAMPLE // HOSTS  # hashes of one host
    with writing(engine) as session:
        begun = session.scalars(select(Segment).where(Segment.uuid == UUID(segment))).one()
        for kind, sample in (("rows", SAMPLE), ("windows", SAMPLE * LENGTH)):
            for host in range(HOSTS):
                numbers = rng.integers(0, 2**64 // sample, each, np.uint64)
                hashes = numbers * np.uint64(sample) if kind == "rows" else numbers
                if host == 3:
                    hashes[1000:1100] = hashes[:100]
                session.add(
                    Fingerprint(
                        run_id=begun.run_id, segment_id=begun.id, kind=kind, host=host, sample=sample, points=each,
                        steps=compress(np.sort(rng.integers(1, STEPS + 1, each))), hashes=pack(kind, hashes),
                        seen=np.array([[1, STEPS, PER_STEP // HOSTS]]).tobytes(),
                    )
                )  # fmt: skip
    with reading(engine) as session:
        lengths = (func.length(column) for column in (Fingerprint.steps, Fingerprint.hashes, Fingerprint.seen))
        size = sum(session.scalars(select(func.sum(length))).one() for length in lengths)
        assert 10**6 < size <= MOST_BYTES
        run = RunRepository(session).by_uuid(UUID(store.run()))
        assert run is not None
        audit = audit_of(session, run)
    for found in (audit.rows, audit.windows):
        assert found is not None
        assert (found.readings, found.repeats, found.rows_read) == (each * HOSTS, 100, STEPS * PER_STEP)
        assert found.onset is None
        assert len(found.over_time) <= 100
    assert audit.rows is not None
    assert audit.rows.coverage == pytest.approx(1.0, abs=0.001)
