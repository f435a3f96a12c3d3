"""The view holds what the rules look at beside series: config, events, sets, items, hits, recipe, the clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judged_world import TRAIN, JudgedWorld
from sqlalchemy import Engine, select

from service.database.engine import reading, writing
from service.database.models import Event, Fingerprint, ItemResult, Run, RunState, Segment
from service.detect.inputs import RunView
from service.judgements.beside import in_words, recipe_of, same_order
from service.judgements.kept import KeptRuns
from service.judgements.view import Clock, build_view, reference_view
from service.series.packing import compress
from service.series.writer import write_points

HELD = "heldout/lab/ce_loss"


@pytest.fixture
def world(engine: Engine) -> JudgedWorld:
    return JudgedWorld(engine)


def seen(world: JudgedWorld, run_id: int, kept: KeptRuns | None = None, clock: Clock | None = None) -> RunView:
    with reading(world.engine) as session:
        return build_view(session, session.get_one(Run, run_id), kept, clock)


def add(world: JudgedWorld, run_id: int, *rows: Any, start: int = 0) -> None:
    """Rows of the run's segment that starts at `start`."""
    with writing(world.engine) as session:
        segment = session.scalars(select(Segment).where(Segment.run_id == run_id, Segment.start_step == start)).one()
        for row in rows:
            row.run_id, row.segment_id = run_id, segment.id
            session.add(row)


def event(step: int, kind: str, value: Any) -> Event:
    return Event(step=step, kind=kind, value={"value": value}, at=0.0)


def of_set(step: int, name: str) -> Event:
    return event(step, "evaluation_set", {"metric": HELD, "set": name})


def items(step: int, correct: list[int]) -> ItemResult:
    bits = np.packbits(np.array(correct, bool), bitorder="little").tobytes()
    return ItemResult(task="moby_cont", step=step, items=len(correct), correct=bits)


def hits(step: int, number: int) -> Fingerprint:
    steps, hashes = np.array([step], np.int64), np.array([number], np.uint64)
    looked = np.array([[1, step, 8]], np.int64)
    return Fingerprint(kind="heldout_hits", host=0, set_name="lab", sample=16, points=1, steps=compress(steps),
                       hashes=hashes.tobytes(), seen=looked.tobytes())  # fmt: skip


@pytest.mark.parametrize("growing", [False, True])
def test_what_is_superseded_is_left_out_and_what_comes_later_is_seen(world: JudgedWorld, growing: bool) -> None:
    kept = KeptRuns() if growing else None
    run = world.run(data={"rows": 3200, "epochs": 1})
    world.points(run, range(1, 51))
    add(world, run, event(5, "checkpoint", "gs://x/5"), event(7, "data", {"shard": 3}), event(40, "code", "abc"))
    add(world, run, of_set(10, "one"), of_set(30, "two"), items(20, [1, 0, 1]), items(40, [1, 1, 1]), hits(6, 7))
    view = seen(world, run, kept)
    assert [(h.step, h.kind, h.text) for h in view.happenings] == [
        (7, "data", '{"shard": 3}'),
        (30, "evaluation_set", '{"metric": "heldout/lab/ce_loss", "set": "two"}'),
        (40, "code", "abc"),
    ]
    assert view.eval_sets == {HELD: [(10, "one"), (30, "two")]}
    assert [(i.step, i.correct.tolist()) for i in view.items["moby_cont"]] == [
        (20, [True, False, True]), (40, [True, True, True]),
    ]  # fmt: skip
    assert view.heldout_hits is not None
    found = view.heldout_hits["lab"]
    assert (found.steps.tolist(), found.hashes.tolist(), found.sample, found.rate) == ([6], [7], 1, 16)
    assert (found.seen_steps.tolist(), found.seen_rows.tolist()) == (list(range(1, 7)), [8] * 6)
    with writing(world.engine) as session:
        world.segment(session, run, 25, config={"lr": 2}, versions={"commit": "b"}, topology={"hosts": 4})
    world.points(run, range(26, 31))
    view = seen(world, run, kept)
    assert [h.step for h in view.happenings] == [7]
    assert (view.eval_sets, [i.step for i in view.items["moby_cont"]]) == ({HELD: [(10, "one")]}, [20])
    newest = view.segments[-1]
    assert (newest.config, newest.versions, newest.topology["hosts"]) == ({"lr": 2}, {"commit": "b"}, 4)
    assert newest.rates == ((26, 1024),)
    add(world, run, items(30, [0, 0, 0]), start=25)
    assert [i.step for i in seen(world, run, kept).items["moby_cont"]] == [20, 30]


def test_a_run_nobody_looks_through_for_heldout_text_says_so(world: JudgedWorld) -> None:
    run = world.run()
    world.points(run, [1])
    assert seen(world, run).heldout_hits is None


def test_the_references_recipe_sets_and_knots_are_known(world: JudgedWorld) -> None:
    run = world.run()
    world.points(run, [1])
    recipe = seen(world, run).recipe
    assert recipe.entries["model.d_model"] == 128
    assert recipe.sets == {HELD: "77bcf27f30a06c6b"}
    assert recipe.loss.definition.startswith("mean cross-entropy")
    assert recipe.knots == ()


def test_a_stitched_reference_has_knots_where_its_recordings_and_schedules_meet(world: JudgedWorld) -> None:
    from service.references.bundle import load_bundle
    from service.references.describe import description
    from service.references.repository import ReferenceRepository
    from service.references.shipped import BUNDLES
    from service.runs.repository import RunRepository

    with writing(world.engine) as session:
        stored = ReferenceRepository(session).install(load_bundle(BUNDLES / "olmo3-7b"))
        curve = ReferenceRepository(session).run_of(stored.id, "stage1")
        assert curve is not None
        run = Run(reference="olmo3-7b", stage="stage1")
        metrics = reference_view(session, run).metrics
        starts = RunRepository(session).live_segments(curve.id)
        found = recipe_of(description(stored), "stage1", metrics[TRAIN], starts)
    assert any("of its schedule" in knot.what for knot in found.knots)
    assert sum("recordings meet" in knot.what for knot in found.knots) > 10
    tokens = [knot.tokens for knot in found.knots]
    assert tokens == sorted(tokens)
    assert tokens[0] > 0.0
    assert tokens[-1] < 6e12


@pytest.mark.parametrize(
    ("config", "rows", "declared"),
    [
        ({}, 3200, False),
        ({"data": {"order": "reference"}}, 3200, True),
        ({"data": {"order": "my own"}}, 3200, False),
        ({"data": {"order_seed": 0}}, 3200, True),
        ({"data": {"order_seed": 1}}, 3200, False),
        ({"data": {"order_seed": 0, "shards": 8}}, 3200, False),
        ({"data": {"order_seed": 0}}, 1600, False),
    ],
)
def test_the_references_order_is_declared_or_it_is_not(
    world: JudgedWorld, config: dict[str, Any], rows: int, declared: bool
) -> None:
    run = world.run(data={"rows": rows, "epochs": 1})
    with writing(world.engine) as session:
        world.segment(session, run, 0, config=config, started_at=2e9)
    world.points(run, [1])
    view = seen(world, run)
    assert view.same_order_declared is declared
    assert same_order(view.recipe, config, view.data) is declared


def test_only_a_live_judgement_has_a_clock_and_reads_times_once_it_is_silent(world: JudgedWorld) -> None:
    run = world.run()
    world.points(run, [1, 2, 3])
    with writing(world.engine) as session:
        segment = session.scalars(select(Segment.id).where(Segment.run_id == run)).one()
        at = np.array([4, 5], np.int64)
        write_points(session, run, segment, at, np.array([104.0, 105.0]), None, {TRAIN: (at, np.array([3.0, 3.0]))})
        last = session.get_one(RunState, run).last_data_at = 200.0
    assert seen(world, run).arrivals is None
    fresh = seen(world, run, clock=Clock(last + 1.0, 150.0)).arrivals
    assert fresh is not None
    assert (fresh.now, fresh.last, fresh.heard_since, len(fresh.times), fresh.finished) == (
        201.0,
        200.0,
        150.0,
        0,
        False,
    )
    silent = seen(world, run, clock=Clock(last + 60.0, 150.0)).arrivals
    assert silent is not None
    assert silent.times.tolist() == [104.0, 105.0]
    with writing(world.engine) as session:
        session.scalars(select(Segment).where(Segment.run_id == run)).one().finished_at = 210.0
    ended = seen(world, run, clock=Clock(last + 60.0, 150.0)).arrivals
    assert ended is not None
    assert ended.finished


@pytest.mark.parametrize(
    ("value", "words"), [("a\n b", "a b"), ({"b": 1, "a": [2]}, '{"a": [2], "b": 1}'), (None, "null")]
)
def test_an_event_is_told_in_one_short_line(value: Any, words: str) -> None:
    assert in_words(value) == words
    assert len(in_words("x" * 1_000)) == 200
