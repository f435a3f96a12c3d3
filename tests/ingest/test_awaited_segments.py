"""An evaluator may be ahead of its trainer: it names the segment of its weights before that one is announced."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from sqlalchemy import Engine, select

from service.database.engine import reading
from service.database.models import Segment
from service.series.lineage import lineage
from service.worker.seal import seal_run
from tests.ingest.store_client import Store


def evaluate(store: Store, evaluator: str, weights: str, step: int, value: float) -> None:
    answer = store.batch(
        evaluator, [step], {"heldout/a/ce_loss": [value]}, weights_segment=weights, times=[time.time()]
    )
    assert answer.status_code == 202, answer.text


def seal_all(engine: Engine) -> None:
    with reading(engine) as session:
        runs = set(session.scalars(select(Segment.run_id)))
    for run in runs:
        seal_run(engine, run)


@pytest.mark.parametrize("order", ["evaluator first", "trainer first"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_late_trainer_supersedes_and_places_what_was_said_of_its_weights(
    store: Store, engine: Engine, order: str, sealed: bool
) -> None:
    """The old start runs to step 20 at 10 tokens a step; the new one starts at 12. Evaluations of the old weights
    beyond 12 no longer count, whichever came first."""
    now = time.time()
    old, new = str(uuid.uuid4()), str(uuid.uuid4())
    evaluator = store.start(kind="evaluator", tokens_per_step=None, started_at=now - 100)

    def train() -> None:
        store.start(segment=old, started_at=now - 90, tokens_per_step=10)
        store.start(segment=new, started_at=now - 50, start_step=12, start_tokens=1000.0, tokens_per_step=100)

    def judge() -> None:
        for weights, step, value in ((old, 10, 1.0), (old, 20, 2.0), (new, 14, 3.0)):
            evaluate(store, evaluator, weights, step, value)
        if sealed:
            seal_all(engine)

    for act in (judge, train) if order == "evaluator first" else (train, judge):
        act()
    found: dict[str, Any] = store.read("heldout/a/ce_loss")["heldout/a/ce_loss"]
    assert found == {"steps": [10, 14], "tokens": [100.0, 1200.0], "values": [1.0, 3.0]}
    every = store.read("heldout/a/ce_loss", superseded="true")["heldout/a/ce_loss"]
    assert every["steps"] == [10, 14, 20]


def test_what_was_not_announced_is_no_segment_yet(store: Store, engine: Engine) -> None:
    evaluator, weights = store.start(kind="evaluator", tokens_per_step=None), str(uuid.uuid4())
    evaluate(store, evaluator, weights, 5, 1.0)
    assert store.read("heldout/a/ce_loss")["heldout/a/ce_loss"]["values"] == [1.0]
    assert store.batch(weights, [1], {"train/ce_loss": [1.0]}).status_code == 404
    with reading(engine) as session:
        run = session.scalars(select(Segment.run_id)).first()
        assert run is not None
        assert [str(segment.uuid) for segment in lineage(session, run).segments] == [evaluator]
    store.start(segment=weights)
    assert store.batch(weights, [1], {"train/ce_loss": [1.0]}).status_code == 202
    answer = store.http.put(f"/api/v1/segments/{weights}", json={"process": 0})
    assert answer.status_code == 422
    with reading(engine) as session:
        assert len(lineage(session, run).segments) == 2
        assert session.scalars(select(Segment.kind).order_by(Segment.id)).all() == ["evaluator", "trainer"]


def test_the_weights_may_be_of_another_run(store: Store) -> None:
    """A fork's evaluator names its parent's segment, which is announced later, in the parent's run."""
    now, parent = time.time(), str(uuid.uuid4())
    fork = store.start("fork", forked_from={"run": "run", "step": 50}, start_step=50, started_at=now)
    evaluator = store.start("fork", kind="evaluator", tokens_per_step=None, started_at=now + 1)
    evaluate(store, evaluator, parent, 40, 4.0)
    store.start(segment=parent, started_at=now - 100)
    assert store.read("heldout/a/ce_loss", run="fork")["heldout/a/ce_loss"]["values"] == [4.0]
    assert store.batch(fork, [51], {"train/ce_loss": [1.0]}).status_code == 202
