"""Whatever arrives in whatever order comes back as the rules say, sealed or not."""

from __future__ import annotations

import math
import random
import struct
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select

from service.database.engine import reading
from service.database.models import Chunk, Journal, Run, RunState
from service.series import chunks, writer
from service.series.repository import SeriesRepository
from service.worker.seal import seal_run
from tests.ingest.store_client import Store

SPECIAL = [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1]
METRICS = ("loss", "heldout")


def bits(values: Any) -> list[bytes]:
    """Floats that only equal themselves: -0.0 is not 0.0. JSON knows one NaN."""
    return [struct.pack("d", math.nan if math.isnan(value) else value) for value in values]


@dataclass
class Naive:
    """Every point ever accepted, and the rules read out loud."""

    segments: list[dict[str, Any]] = field(default_factory=list)
    points: list[tuple[int, int | None, str, int, float]] = field(default_factory=list)  # segment, weights, metric, …

    def age(self, index: int | None) -> tuple[float, str]:
        return (-1.0, "") if index is None else (self.segments[index]["started_at"], self.segments[index]["id"])

    def superseded(self, index: int | None, step: int) -> bool:
        if index is None or self.segments[index]["kind"] != "trainer":
            return False
        newer = [s for i, s in enumerate(self.segments) if s["kind"] == "trainer" and self.age(i) > self.age(index)]
        return any(step > s["start_step"] for s in newer)

    def live(self, metric: str) -> dict[int, tuple[float, int]]:
        """Step -> (value, segment)."""
        best: dict[int, tuple[Any, float, int]] = {}
        for arrival, (segment, weights, name, step, value) in enumerate(self.points):
            if name != metric or self.superseded(segment, step) or self.superseded(weights, step):
                continue
            place = (self.age(segment), self.age(weights), arrival)
            if step not in best or place > best[step][0]:
                best[step] = (place, value, segment)
        return {step: (value, segment) for step, (_, value, segment) in sorted(best.items())}


values = st.one_of(st.sampled_from([None, *SPECIAL]), st.floats(width=64))
segment = st.tuples(
    st.just("segment"),
    st.sampled_from(["trainer", "trainer", "evaluator", "import"]),
    st.integers(0, 30),
    st.integers(0, 9),
)
batch = st.tuples(
    st.just("batch"),
    st.integers(0, 5),
    st.lists(st.integers(0, 40), min_size=0, max_size=12).flatmap(
        lambda steps: st.tuples(
            st.just(steps),
            st.lists(values, min_size=len(steps), max_size=len(steps)),
            st.lists(values, min_size=len(steps), max_size=len(steps)),
        )
    ),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 5)),
)
operations = st.lists(
    st.one_of(segment, batch, batch, batch, st.tuples(st.just("retry"), st.integers(0, 30)), st.just(("seal",))),
    max_size=25,
)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 8 points with summaries of 3 cells, so that a few points make many of them."""
    monkeypatch.setattr(chunks, "CHUNK_POINTS", 8)
    monkeypatch.setattr(writer, "CHUNK_POINTS", 8)
    monkeypatch.setattr(chunks, "SUMMARY_CELLS", 3)


def play(store: Store, engine: Engine, script: list[Any]) -> tuple[Naive, int]:
    """Do the operations on both; returns the model and the run's key."""
    naive, sent = Naive(), []
    base = time.time()

    def start(kind: str, start_step: int, at: int) -> None:
        started_at = base + at
        identity = str(uuid.uuid4())
        store.start(
            segment=identity, kind=kind, start_step=start_step, started_at=started_at, sent_at=time.time() + 0.0
        )
        naive.segments.append({"id": identity, "kind": kind, "start_step": start_step, "started_at": started_at})

    start("trainer", 0, 5)
    with reading(engine) as session:
        run_id = session.execute(select(Run.id).where(Run.uuid == uuid.UUID(store.run()))).scalar_one()
    for operation in script:
        if operation[0] == "segment" and not any(s["started_at"] == base + operation[3] for s in naive.segments):
            start(*operation[1:])
        elif operation[0] == "batch":
            _, index, (steps, first, second), both, weights = operation
            index %= len(naive.segments)
            owner = naive.segments[index]
            metrics = {"loss": first, "heldout": second} if both else {"loss": first}
            body: dict[str, Any] = {}
            of = None
            if weights is not None or owner["kind"] == "evaluator":
                of = (weights or 0) % len(naive.segments)
                body["weights_segment"] = naive.segments[of]["id"]
            answer = store.batch(owner["id"], steps, metrics, seq=len(sent), **body)
            assert answer.json()["duplicate"] is False, answer.text
            sent.append((owner["id"], steps, metrics, body))
            for name, column in metrics.items():
                for step, value in zip(steps, column, strict=True):
                    if value is not None:
                        naive.points.append((index, of, name, step, value))
        elif operation[0] == "retry" and sent:
            number = operation[1] % len(sent)
            owner_id, steps, metrics, body = sent[number]
            answer = store.batch(owner_id, steps, metrics, seq=number, **body)
            assert answer.json()["duplicate"] is True, answer.text
        elif operation[0] == "seal":
            seal_run(engine, run_id)
    return naive, run_id


def check_exact(naive: Naive, engine: Engine, run_id: int) -> None:
    with reading(engine) as session:
        keys = {str(u): i for i, u in SeriesRepository(session).segment_uuids(run_id).items()}
        repository = SeriesRepository(session)
        found = repository.read(run_id, METRICS)
        everything = repository.read(run_id, METRICS, superseded=True)
        windows = repository.read(run_id, METRICS, from_step=7, to_step=19)
        latest = repository.latest(run_id, METRICS)
    for name in METRICS:
        live = naive.live(name)
        all_points = [p for p in naive.points if p[2] == name]
        if name not in found:
            assert all_points == []
            continue
        points = found[name]
        assert points.steps.tolist() == list(live)
        assert bits(points.values) == bits(value for value, _ in live.values())
        assert points.segments.tolist() == [keys[naive.segments[s]["id"]] for _, s in live.values()]
        inside = {step: value for step, (value, _) in live.items() if 7 <= step <= 19}
        assert windows[name].steps.tolist() == list(inside)
        assert bits(windows[name].values) == bits(inside.values())
        kept = everything[name]
        assert sorted(zip(kept.steps.tolist(), bits(kept.values), strict=True)) == sorted(
            (step, bits([value])[0]) for _, _, _, step, value in all_points
        )
        assert kept.steps[kept.live].tolist() == list(live)
        assert bits(kept.values[kept.live]) == bits(value for value, _ in live.values())
        if live:
            assert latest[name][0] == max(live)
            assert bits([latest[name][1]]) == bits([live[max(live)][0]])
        else:
            assert name not in latest


def check_overview(naive: Naive, engine: Engine, run_id: int, points: int, window: tuple[int, int]) -> dict[str, Any]:
    with reading(engine) as session:
        repository = SeriesRepository(session)
        overviews = repository.overviews(run_id, METRICS, points=points, from_step=window[0], to_step=window[1])
    answer: dict[str, Any] = {}
    for name, found in overviews.items():
        live = {s: v for s, (v, _) in naive.live(name).items() if window[0] <= s <= window[1]}
        assert len(found) <= points
        assert int(found.count.sum()) == len(live)
        buckets: dict[int, list[tuple[int, float]]] = {}
        for step, value in live.items():
            buckets.setdefault(step // found.width, []).append((step, value))
        assert found.steps.tolist() == [bucket[-1][0] for bucket in buckets.values()]
        for index, bucket in enumerate(buckets.values()):
            finite = [value for _, value in bucket if math.isfinite(value)]
            assert found.count[index] == len(bucket)
            assert found.non_finite[index] == len(bucket) - len(finite)
            assert bits([found.first[index], found.last[index]]) == bits([bucket[0][1], bucket[-1][1]])
            if finite:
                assert found.minimum[index] == min(finite)
                assert found.maximum[index] == max(finite)
                assert found.minimum[index] <= found.mean[index] <= found.maximum[index]
            else:
                assert np.isnan([found.minimum[index], found.maximum[index], found.mean[index]]).all()
        answer[name] = (found.width, found.steps.tolist(), found.minimum.tolist(), found.maximum.tolist())
    return answer


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=operations, points=st.integers(1, 12), window=st.tuples(st.integers(0, 20), st.integers(15, 60)))
def test_any_sequence_reads_back_as_the_model_says(
    store: Store, engine: Engine, small_chunks: None, script: list[Any], points: int, window: tuple[int, int]
) -> None:
    check_script(Store(store.http), engine, script, points, window)


@pytest.mark.parametrize("seed", range(8))
def test_long_lives_read_back_as_the_model_says(store: Store, engine: Engine, small_chunks: None, seed: int) -> None:
    """Denser than what shrinks well: many segments, steps in disorder and again, sealed every now and then."""
    rng = random.Random(seed)
    kinds = ["import", "trainer", "evaluator"] if seed % 2 else ["import"]
    script: list[Any] = []
    for _ in range(60):
        what = rng.random()
        if what < 0.12:
            script.append(("segment", rng.choice(kinds), rng.randint(5, 60), rng.randint(0, 9)))
        elif what < 0.3:
            script.append(("seal",))
        elif what < 0.35:
            script.append(("retry", rng.randint(0, 100)))
        else:
            first, span = rng.randint(0, 60), rng.choice([6, 20])
            steps = [rng.randint(first, first + span) for _ in range(rng.randint(0, 12))]
            if rng.random() < 0.5:
                steps = sorted(set(steps))
            if seed % 4 == 2:  # as a trainer goes on
                steps = [2 * len(script), 2 * len(script) + 1]
            columns = [[rng.choice([None, *SPECIAL, rng.gauss(0, 1)]) for _ in steps] for _ in METRICS]
            weights = None if seed % 4 == 2 else rng.choice([None, rng.randint(0, 5)])
            script.append(
                ("batch", 0 if seed % 4 == 2 else rng.randint(0, 5), (steps, *columns), rng.random() < 0.5, weights)
            )
    check_script(store, engine, script, rng.randint(1, 30), (rng.randint(0, 20), rng.randint(25, 80)))


def test_the_latest_point_is_found_below_what_is_superseded(store: Store, engine: Engine, small_chunks: None) -> None:
    segment = store.start(started_at=1.0, sent_at=time.time())
    steps = [*range(1, 9), *range(20, 41)]
    store.batch(segment, steps, {"loss": [float(step) for step in steps]})
    with reading(engine) as session:
        run_id = session.scalars(select(Run.id)).one()
    seal_run(engine, run_id)
    store.start(started_at=2.0, sent_at=time.time(), start_step=15)
    for _ in range(2):
        with reading(engine) as session:
            assert SeriesRepository(session).latest(run_id, ["loss", "none"]) == {"loss": (8, 8.0)}
        late = store.start(started_at=1.5, sent_at=time.time(), start_step=16)  # superseded as it is announced
        store.batch(late, [30, 31], {"loss": [0.0, 0.0]})


def check_script(store: Store, engine: Engine, script: list[Any], points: int, window: tuple[int, int]) -> None:
    naive, run_id = play(store, engine, script)
    check_exact(naive, engine, run_id)
    before = check_overview(naive, engine, run_id, points, window)
    check_overview(naive, engine, run_id, points, (0, 2**40))
    seal_run(engine, run_id)
    with reading(engine) as session:
        assert session.scalar(select(func.count()).select_from(Journal).where(Journal.run_id == run_id)) == 0
        state = session.get_one(RunState, run_id)
        assert (state.journal_points, state.journal_steps, state.journal_rows) == (0, 0, 0)
        stored = session.scalar(select(func.sum(Chunk.points)).where(Chunk.run_id == run_id, Chunk.metric_id > 0))
        assert (stored or 0) == len(naive.points)
    check_exact(naive, engine, run_id)
    assert repr(check_overview(naive, engine, run_id, points, window)) == repr(before)
