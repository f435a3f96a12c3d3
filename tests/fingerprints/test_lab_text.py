"""The lab's own text through the hook's code, real HTTP and the database: packed anew, and with a held-out document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from sqlalchemy import Engine

from reproduction.lab import corpus
from service.database.engine import reading, writing
from service.detect.findings import Findings
from service.detect.inputs import RunView
from service.detect.rules import heldout_text, repeated_rows
from service.fingerprints import repository
from service.fingerprints.answers import audit_of
from service.fingerprints.repository import FingerprintRepository
from service.fingerprints.schemas import RunAudit
from service.runs.repository import RunRepository
from service.settings import Settings
from service.worker.seal import seal_run
from tests.ingest.store_client import Store, create_store
from trainer_hooks.fingerprints import Fingerprints, snapshot
from trainer_hooks.heldout_windows import HeldoutWindows, windows_of

EACH = 8  # rows per step
HELDOUT = "lab"
Tokens = NDArray[np.uint32]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with TestClient(create_store(Settings(database_url=database_url))) as http:
        yield Store(http)


@pytest.fixture(scope="module")
def text() -> corpus.Corpus:
    return corpus.load()


def batches(rows: Tokens) -> list[Tokens]:
    return [rows[at : at + EACH] for at in range(0, len(rows) - EACH + 1, EACH)]


def send(store: Store, read: list[Tokens], heldout: HeldoutWindows | None = None, **segment: Any) -> str:
    """Everything that a host reads from step 1 on, in records of 100 steps."""
    segment_id = store.start(**segment)
    hook = Fingerprints(4, heldout)
    for step, rows in enumerate(read, 1):
        hook.add(step, snapshot(rows), 0)
        if step % 100 == 0 or step == len(read):
            for body in hook.due(0.0, everything=True):
                answer = store.post(segment_id, "fingerprints", **body)
                assert answer.status_code == 202, answer.text
    return store.run()


def audited(engine: Engine, run: str) -> tuple[RunAudit, Findings]:
    with reading(engine) as session:
        found = RunRepository(session).by_uuid(UUID(run))
        assert found is not None
        stored = FingerprintRepository(session)
        view = RunView(
            {}, {}, {}, [], rows=stored.rows(found.id), windows=stored.rows(found.id, "windows"),
            heldout_hits=stored.heldout_hits(found.id) or None,
        )  # fmt: skip
        return audit_of(session, found), Findings(view)


def test_a_replay_that_was_packed_anew_is_a_repeat(store: Store, engine: Engine, text: corpus.Corpus) -> None:
    rows = text.rows[: 1_000 * EACH]
    length = rows.shape[1]
    again = rows.reshape(-1)[length // 3 : length // 3 + 300 * EACH * length].reshape(-1, length)
    audit, findings = audited(engine, send(store, batches(rows)))
    assert audit.windows is not None
    assert audit.windows.repeats <= 0.02 * audit.windows.readings
    assert repeated_rows.judge(findings).state == "no"

    store = Store(store.http)
    audit, findings = audited(engine, send(store, batches(np.concatenate([rows, again]))))
    assert audit.rows is not None
    assert audit.windows is not None
    assert (audit.rows.repeats, audit.rows.onset) == (0, None)
    assert audit.windows.onset is not None
    assert abs(audit.windows.onset[1] - 1_001) <= 20
    assert audit.windows.share > 0.5
    # Each window lies 1,000 steps back, or 1,001 where the cut moved it into the next batch.
    assert {d.steps for d in audit.windows.distances[:2]} <= {999, 1_000, 1_001}
    judged = repeated_rows.judge(findings)
    assert (judged.state, judged.causes[0].name) == ("yes", "documents are read again and packed into other rows")
    assert "packed anew" in judged.summary


def test_a_heldout_document_is_found_wherever_it_is_packed(store: Store, engine: Engine, text: corpus.Corpus) -> None:
    documents = text.documents(heldout=True)
    heldout = HeldoutWindows()
    heldout.add(HELDOUT, windows_of(documents))
    rows = text.rows[: 600 * EACH].copy()
    audit, findings = audited(engine, send(store, batches(rows), heldout))
    (clean,) = audit.heldout
    assert (clean.set, clean.rate, clean.rows_read) == (HELDOUT, 64, len(rows))
    assert clean.windows == len(windows_of(documents))
    assert clean.rows_with_passage <= 3 < len(rows)
    assert heldout_text.judge(findings).state == "no"

    flat = rows.reshape(-1)
    document = max(documents, key=len)[:20_000]
    flat[400 * EACH * rows.shape[1] + 37 :][: len(document)] = document
    store = Store(store.http)
    audit, findings = audited(engine, send(store, batches(rows), heldout))
    (met,) = audit.heldout
    assert met.rows_with_text - clean.rows_with_text > 0.6 * len(document) / rows.shape[1]
    judged = heldout_text.judge(findings)
    assert judged.state == "yes"
    assert judged.since_step is not None
    assert abs(judged.since_step[1] - 401) <= 10
    assert "passages of the held-out set lab" in judged.summary


def test_what_the_worker_joins_says_the_same(
    store: Store, engine: Engine, text: corpus.Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    heldout = HeldoutWindows()
    heldout.add(HELDOUT, windows_of(text.documents(heldout=True)))
    heldout.add("none of it", windows_of(np.arange(50_000)))
    run = send(store, batches(text.rows[: 1_000 * EACH]), heldout)
    before, _ = audited(engine, run)
    monkeypatch.setattr(repository, "MOST_SENDINGS", 1)
    with writing(engine) as session:
        found = RunRepository(session).by_uuid(before.run)
        assert found is not None
    seal_run(engine, found.id)
    after, _ = audited(engine, run)
    assert after == before


def test_one_whole_document_in_one_row_is_told(store: Store, engine: Engine, text: corpus.Corpus) -> None:
    documents = text.documents(heldout=True)
    heldout = HeldoutWindows()
    heldout.add(HELDOUT, windows_of(documents))
    rows = text.rows[: 55 * 64 * EACH].reshape(-1, 64 * text.rows.shape[1]).copy()  # as long as a model's own
    audit, findings = audited(engine, send(store, batches(rows), heldout))
    assert (audit.heldout[0].rows_with_document, heldout_text.judge(findings).state) == (0, "no")
    document = max(documents, key=len)[:6_000]
    rows[40 * EACH, 100 : 100 + len(document)] = document
    store = Store(store.http)
    read = send(store, batches(rows), heldout)
    audit, findings = audited(engine, read)
    (met,) = audit.heldout
    judged = heldout_text.judge(findings)
    assert met.rows_with_document == 1
    assert met.set_share == pytest.approx(len(document) / sum(map(len, documents)), rel=0.5)
    assert (judged.state, judged.since_step) == ("yes", (40, 41))
    assert judged.causes[0].weight == "shown"

    rows[50 * EACH, 100 : 100 + len(document)] = document  # the same text again is one document
    store = Store(store.http)
    again, _ = audited(engine, send(store, batches(rows), heldout))
    assert (again.heldout[0].rows_with_document, again.heldout[0].set_share) == (1, met.set_share)
