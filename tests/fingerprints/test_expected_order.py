"""The lab's own Grain loader beside the order that a reference's rows.bin holds, over HTTP and in the judgement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from sqlalchemy import Engine

from reproduction.data.loaders import host_loader
from reproduction.lab import corpus
from service.database.engine import reading, writing
from service.detect.findings import Findings
from service.detect.judgement import Judgement
from service.detect.rules import data_order, data_position
from service.fingerprints.endpoints import router as audits
from service.judgements.view import build_view
from service.references.bundle import load_bundle
from service.references.expecting import by_loader
from service.references.repository import ReferenceRepository
from service.runs.repository import RunRepository
from service.settings import Settings
from tests.ingest.store_client import Store, create_store
from tests.references.conftest import SERIES, TOML
from trainer_hooks.fingerprints import Fingerprints, snapshot

HOSTS, EACH, STEPS, SAMPLE, SEED = 4, 4, 120, 4, 20250
Batches = list[list[NDArray[np.uint32]]]  # by step, by host
ROWS = corpus.load().rows[: 2 * HOSTS * EACH * STEPS]


def host_of(seed: int) -> Callable[[int, int], Any]:
    def make(process_index: int, process_count: int) -> Any:
        return host_loader(ROWS, host=process_index, hosts=process_count, batch=EACH, seed=seed)

    return make


def batches(seed: int, hosts: int = HOSTS, steps: int = STEPS) -> Batches:
    loaders = [iter(host_of(seed)(host, hosts)) for host in range(hosts)]
    return [[next(loader) for loader in loaders] for _ in range(steps)]


@pytest.fixture
def store(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "series").mkdir()
    (tmp_path / "reference.toml").write_text(TOML)
    (tmp_path / "series" / "stage1.csv").write_text(SERIES)
    expected = by_loader(host_of(SEED), "stage1", STEPS, hosts=HOSTS, sample=SAMPLE)
    (tmp_path / "rows.bin").write_bytes(expected.to_bytes())
    app = create_store(Settings(database_url=database_url))
    app.include_router(audits, prefix="/api/v1")
    with writing(engine) as session:
        ReferenceRepository(session).install(load_bundle(tmp_path))
    with TestClient(app) as http:
        yield Store(http)


def send(store: Store, read: Batches, start_step: int = 0, started_at: float = 1000.0, hosts: int = HOSTS) -> None:
    """What all hosts read from step `start_step` + 1 on."""
    segment = store.start(
        start_step=start_step, started_at=started_at, reference="small", stage="stage1",
        config={"data": {"order": "reference"}}, data={"rows": len(ROWS), "epochs": 1},
        topology={"hosts": hosts, "processes": hosts},
    )  # fmt: skip
    for host in range(hosts):
        hook = Fingerprints(SAMPLE)
        for step, shards in enumerate(read, start_step + 1):
            hook.add(step, snapshot(shards[host]), host)
        for body in hook.due(0.0, everything=True):
            answer = store.post(segment, "fingerprints", process=host, **body)
            assert answer.status_code == 202, answer.text


def told(store: Store, engine: Engine) -> tuple[Any, Judgement, Judgement]:
    run = store.run()
    answer = store.http.get(f"/api/v1/runs/{run}/audit")
    assert answer.status_code == 200, answer.text
    with reading(engine) as session:
        found = RunRepository(session).by_uuid(UUID(run))
        assert found is not None
        findings = Findings(build_view(session, found))
        return answer.json()["same_rows"], data_order.judge(findings), data_position.judge(findings)


def evidence(judgement: Judgement, name: str) -> object:
    return next(item.value for item in judgement.evidence if item.name == name)


def test_the_same_seed_reads_the_same_rows_to_the_end(store: Store, engine: Engine) -> None:
    send(store, batches(SEED))
    same, order, _ = told(store, engine)
    assert (same["relation"], same["through"], same["differs"], same["wrong_steps"]) == ("same", STEPS, None, 0)
    assert same["same"] == same["compared"] > 100
    assert (order.state, evidence(order, data_order.ORDER)) == ("no", "same")
    assert f"through step {STEPS}" in order.summary


def test_a_restart_at_the_right_place_is_shown_to_be_right(store: Store, engine: Engine) -> None:
    read = batches(SEED)
    send(store, read[:70])
    send(store, read[60:], 60, 2000.0)  # steps 61 to 70 run again
    same, order, position = told(store, engine)
    assert (same["relation"], same["through"]) == ("same", STEPS)
    assert (order.state, position.state) == ("no", "no")
    assert "at the same steps" in position.summary


def test_another_seed_is_another_order_from_the_first_step(store: Store, engine: Engine) -> None:
    send(store, batches(SEED + 1))
    same, order, _ = told(store, engine)
    assert (same["relation"], same["through"], same["differs"]) == ("other order", None, 1)
    assert same["known"] > 0.4  # half of the corpus is covered by rows.bin
    assert (order.state, evidence(order, data_order.ORDER)) == ("yes", "different")
    assert order.since_step == (1, 1)
    assert order.causes[0].name == "another seed or sharding of the data"
    assert "its rows in another order" in order.summary


def test_a_restart_one_batch_late_is_shifted_by_one_from_there_on(store: Store, engine: Engine) -> None:
    read = batches(SEED)
    send(store, read[:60])
    send(store, read[61:], 60, 2000.0)
    same, order, position = told(store, engine)
    assert (same["relation"], same["shift"], same["steady"], same["through"]) == ("shifted", 1, 1.0, 60)
    assert same["since"][0] <= 61 <= same["since"][1]
    assert (order.state, evidence(order, data_order.ORDER)) == ("yes", "departs")
    assert (order.causes[0].name, order.causes[0].weight) == ("data ahead of the weights", "shown")
    assert "restart at step 60" in order.causes[0].because
    assert "the same rows 1 step later" in order.summary
    assert (position.state, position.value) == ("yes", 1.0)
    assert "1 step ahead of the weights (rows beside the reference" in position.summary


def test_a_restart_one_batch_early_is_the_other_way_round(store: Store, engine: Engine) -> None:
    read = batches(SEED)
    send(store, read[:60])
    send(store, read[59:], 60, 2000.0)
    same, _, position = told(store, engine)
    assert (same["relation"], same["shift"], same["through"]) == ("shifted", -1, 60)
    assert (position.state, position.value) == ("yes", -1.0)


def test_other_rows_are_told_from_another_order(store: Store, engine: Engine) -> None:
    read = batches(SEED)
    others: Batches = [[(rows + 1) % 1024 for rows in shards] for shards in read]
    send(store, read[:60] + others[60:])
    same, order, _ = told(store, engine)
    assert (same["relation"], same["through"], same["known"]) == ("other rows", 60, 0.0)
    assert order.causes[-1].name == "another mix, tokenizer or packing of the data"
    assert order.since_step is not None
    assert order.since_step[0] <= 61 <= order.since_step[1]


def test_what_a_host_has_not_sent_yet_is_no_difference(store: Store, engine: Engine) -> None:
    read = batches(SEED)
    send(store, [shards[:2] for shards in read], hosts=2)
    same, order, _ = told(store, engine)
    assert (same["relation"], same["through"], same["differs"]) == ("same", STEPS, None)
    assert evidence(order, "steps reported in part") == STEPS


def test_a_few_wrong_steps_are_told_when_it_is_right_again(store: Store, engine: Engine) -> None:
    read = batches(SEED)
    send(store, read[:30] + read[90:93] + read[33:])
    same, order, _ = told(store, engine)
    assert (same["relation"], same["through"]) == ("same again", 30) if same["looked"] > 60 else True
    assert 1 <= same["wrong_steps"] <= 3
    assert (order.state, evidence(order, data_order.ORDER)) == ("no", "same")
