"""What is kept between readings changes no answer: whatever arrives in whatever order, sealed or not."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from service.compare.growing import Growing, same_bits
from service.database.engine import reading
from service.database.models import Run
from service.series import chunks, writer
from service.series.growing import GrowingSeries, LiveSeries
from service.series.lineage import lineage
from service.series.repository import SeriesRepository
from service.worker.seal import seal_run
from tests.ingest.store_client import Store

PLANS: list[dict[str, Any]] = [
    {"tokens_per_step": 10},
    {"tokens_per_step": None},
    {"tokens_per_step": None, "ramp": [[1, 10], [8, 20]]},
    {"tokens_per_step": 10, "start_tokens": 1000.0},
]
segment = st.tuples(
    st.just("segment"),
    st.sampled_from(["trainer", "trainer", "evaluator", "import"]),
    st.integers(0, 30),
    st.integers(0, 9),
    st.sampled_from(PLANS),
)
batch = st.tuples(
    st.just("batch"),
    st.integers(0, 5),
    st.one_of(
        st.lists(st.integers(0, 60), min_size=1, max_size=10),
        st.integers(1, 4).map(lambda n: list(range(-n, 0))),  # the next steps of the run
    ),
    st.booleans(),  # held-out too
    st.booleans(),  # tokens given
    st.one_of(st.none(), st.none(), st.integers(0, 5)),  # weights
)
script = st.lists(st.one_of(segment, batch, batch, batch, batch, st.just(("seal",)), st.just(("look",))), max_size=25)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_POINTS", 8)
    monkeypatch.setattr(writer, "CHUNK_POINTS", 8)


def wanted(names: Iterable[str]) -> Sequence[str]:
    return [name for name in names if name != "other"]


def read_anew(engine: Engine, run_id: int) -> dict[str, LiveSeries]:
    with reading(engine) as session:
        repository = SeriesRepository(session)
        points = repository.read(run_id, wanted(repository.names(run_id)))
    return {n: LiveSeries(p.steps, p.tokens, p.values) for n, p in points.items() if len(p)}


def read_kept(kept: GrowingSeries, engine: Engine, run_id: int) -> dict[str, LiveSeries]:
    with reading(engine) as session:
        return kept.read(session, lineage(session, run_id), wanted)


def assert_equal(kept: dict[str, LiveSeries], anew: dict[str, LiveSeries]) -> None:
    assert sorted(kept) == sorted(anew)
    for name, series in kept.items():
        for part in ("steps", "tokens", "values"):
            mine, theirs = getattr(series, part), getattr(anew[name], part)
            assert len(mine) == len(theirs), (name, part)
            assert same_bits(mine, theirs) == len(mine), (name, part, mine, theirs)


class Playing:
    """A run that goes on while others look at it."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self.store, self.engine = store, engine
        self.base = time.time()
        self.segments: list[str] = []
        self.ages: set[int] = set()
        self.last = 0
        self.start("trainer", 0, 5, PLANS[0])
        with reading(engine) as session:
            found = select(Run.id).where(Run.uuid == uuid.UUID(store.run()))
            self.run_id = session.execute(found).scalar_one()

    def start(self, kind: str, start_step: int, age: int, plan: dict[str, Any]) -> None:
        if age in self.ages:
            return
        self.ages.add(age)
        started_at = self.base + age
        self.segments.append(self.store.start(kind=kind, start_step=start_step, started_at=started_at, **plan))

    def batch(self, index: int, steps: list[int], heldout: bool, given: bool, weights: int | None) -> None:
        steps = [step if step >= 0 else self.last + 1 + step - steps[0] for step in steps]
        self.last = max(self.last, *steps)
        count = self.store.seq
        metrics: dict[str, list[float | None]] = {"loss": [count + step / 7.0 for step in steps]}
        metrics["heldout" if heldout else "other"] = [1.0 * count for _ in steps]
        body: dict[str, Any] = {"tokens": [step * 11.0 + count for step in steps]} if given else {}
        if weights is not None:
            body["weights_segment"] = self.segments[weights % len(self.segments)]
        answer = self.store.batch(self.segments[index % len(self.segments)], steps, metrics, **body)
        assert answer.status_code == 202, answer.text

    def act(self, operation: Any) -> None:
        if operation[0] == "segment":
            self.start(*operation[1:])
        elif operation[0] == "batch":
            self.batch(*operation[1:])
        elif operation[0] == "seal":
            seal_run(self.engine, self.run_id)


@given(script)
@example([("batch", 0, [-1], False, True, None), ("seal",), ("batch", 0, [-1], True, False, None)])
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@pytest.mark.usefixtures("small_chunks")
def test_reading_on_is_reading_anew(http: Any, engine: Engine, operations: list[Any]) -> None:
    playing, kept = Playing(Store(http), engine), GrowingSeries()
    seldom = GrowingSeries()
    for operation in operations:
        playing.act(operation)
        anew = read_anew(engine, playing.run_id)
        assert_equal(read_kept(kept, engine, playing.run_id), anew)
        if operation[0] == "look":
            assert_equal(read_kept(seldom, engine, playing.run_id), anew)
    assert_equal(read_kept(seldom, engine, playing.run_id), read_anew(engine, playing.run_id))


def test_what_was_read_before_stays_where_it_is(store: Store, engine: Engine) -> None:
    playing, kept = Playing(store, engine), GrowingSeries()
    playing.batch(0, list(range(1, 400)), True, False, None)
    read_kept(kept, engine, playing.run_id)
    playing.batch(0, [-1], True, False, None)
    first = read_kept(kept, engine, playing.run_id)["loss"]
    before = first.values.copy()
    for _ in range(5):
        playing.batch(0, [-2, -1], True, False, None)
    seal_run(engine, playing.run_id)
    later = read_kept(kept, engine, playing.run_id)["loss"]
    assert np.shares_memory(first.values, later.values)
    assert np.shares_memory(first.steps, read_kept(kept, engine, playing.run_id)["heldout"].steps)
    playing.batch(0, [7], False, False, None)  # a late point
    changed = read_kept(kept, engine, playing.run_id)["loss"]
    assert changed.values[6] != before[6]
    assert np.array_equal(first.values, before)


def test_a_fork_goes_on_with_its_parent(store: Store, engine: Engine) -> None:
    playing, kept = Playing(store, engine), GrowingSeries()
    playing.batch(0, list(range(1, 20)), True, False, None)
    fork = store.start("fork", start_step=10, forked_from={"run": "run", "step": 10})
    with reading(engine) as session:
        run_id = session.execute(select(Run.id).where(Run.uuid == uuid.UUID(store.run("fork")))).scalar_one()
    for step in range(11, 15):
        store.batch(fork, [step], {"loss": [0.5]})
        assert_equal(read_kept(kept, engine, run_id), read_anew(engine, run_id))
        playing.batch(0, [step - 9], False, False, None)  # the parent learns more of the steps they share
        seal_run(engine, playing.run_id)
        assert_equal(read_kept(kept, engine, run_id), read_anew(engine, run_id))


@given(st.lists(st.tuples(st.integers(0, 3000), st.lists(st.integers(0, 9), max_size=500)), max_size=20))
def test_arrays_that_were_handed_out_never_change(pieces: list[tuple[int, list[int]]]) -> None:
    growing = Growing(np.zeros(0, np.int64))
    handed: list[tuple[np.ndarray[Any, Any], list[int]]] = []
    model: list[int] = []
    for keep, more in pieces:
        keep = len(model) if keep > len(model) else keep
        growing = growing.grown(keep, np.array(more, np.int64))
        model = model[:keep] + more
        handed.append((growing.array, list(model)))
    for array, expected in handed:
        assert array.tolist() == expected
