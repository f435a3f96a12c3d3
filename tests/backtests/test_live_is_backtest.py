"""The live worker and the backtest say the same at the same steps, however the points came."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from judged_world import TRAIN, JudgedWorld
from sqlalchemy import Engine

from service.backtests.stored import timeline_of_run
from service.backtests.timeline import Timeline, stretches, told, what_then
from service.database.engine import reading, writing
from service.database.models import DeclaredDeviation, Event, RuleSetting, Run, Segment
from service.detect.replay import judge_prefixes
from service.detect.rules import data_stopped
from service.judgements.bodies import to_body
from service.judgements.view import ReferenceView, reference_view

HELD = "heldout/lab/ce_loss"
BATCH = 25
LOOKS = list(range(BATCH, 401, BATCH))


@pytest.fixture
def world(engine: Engine) -> JudgedWorld:
    return JudgedWorld(engine)


def reference(world: JudgedWorld, run: int) -> ReferenceView:
    with reading(world.engine) as session:
        return reference_view(session, session.get_one(Run, run))


def send(world: JudgedWorld, run: int, metric: str, low: int, high: int, seed: int = 1) -> None:
    """Points low < step ≤ high beside the reference: train sinks from step 150 on, held-out does not follow."""
    series = reference(world, run).metrics[metric]
    inside = (series.steps > low) & (series.steps <= high)
    steps = series.steps[inside]
    if len(steps) == 0:
        return
    noise = np.random.default_rng([seed, high]).normal(0.0, 0.02, len(steps))
    gap = np.where(steps > 150, -0.6, 0.0) if metric == TRAIN else 0.0
    world.points(run, steps.tolist(), (series.values[inside] + noise + gap).tolist(), metric)


def timeline(world: JudgedWorld, run: int) -> Timeline:
    with reading(world.engine) as session:
        return timeline_of_run(session, session.get_one(Run, run))


def backtested(world: JudgedWorld, run: int, looks: list[int]) -> list[dict[str, Any]]:
    (view,) = timeline(world, run).views
    return [of_points({j.rule: to_body(j) for j in said}) for said in judge_prefixes(view, looks)]


def live(world: JudgedWorld, run: int) -> dict[str, Any]:
    return of_points({rule: row.body for rule, row in world.judgements(run).items()})


def of_points(bodies: dict[str, Any]) -> dict[str, Any]:
    """What is judged by points. Whether data still come is told by the clock, of a live run alone."""
    return {rule: body for rule, body in bodies.items() if rule != data_stopped.RULE}


def test_a_stream_judged_in_order_gives_exactly_what_the_backtest_gives(world: JudgedWorld) -> None:
    run, judge = world.run(), world.judge(None)
    with writing(world.engine) as session:
        project = session.get_one(Run, run).project_id
        session.add(
            RuleSetting(project_id=project, run_id=run, rule="train_drift", tolerance=0.2, set_by="Ann", reason="",
                        set_at=1.0)
        )  # fmt: skip
        session.add(_deviation(run))
    said: list[dict[str, Any]] = []
    for low, high in itertools.pairwise([0, *LOOKS]):
        if low == 200:
            with writing(world.engine) as session:
                world.segment(session, run, 200, config={"restart": 1})
            assert judge.judge_run(run)
            assert live(world, run) == said[-1], "a start that has made no step says nothing"
        send(world, run, TRAIN, low, high)
        send(world, run, HELD, low - (low == 0), high)
        assert judge.judge_run(run)
        said.append(live(world, run))
    assert said == backtested(world, run, LOOKS)
    states = [one["train_drift"]["state"] for one in said]
    assert {"cannot tell", "yes"} <= set(states)


def test_of_a_dense_log_a_value_that_is_not_finite_is_said_with_the_judgement_that_follows_it(
    world: JudgedWorld,
) -> None:
    """Blocks end at every 50th step, these batches do not: what waits for a block waits alike in both."""
    run, judge = world.run(), world.judge(None)
    looks = list(range(480, 1_100, 31))
    steps = np.arange(1, looks[-1] + 1)
    values = 3.0 + np.random.default_rng(5).normal(0.0, 0.02, len(steps))
    values[(steps > 803) & (steps <= 823)] += 2.0
    values[steps == 910] = np.nan
    said: list[dict[str, Any]] = []
    for low, high in itertools.pairwise([0, *looks]):
        world.points(run, steps[low:high].tolist(), values[low:high].tolist())
        assert judge.judge_run(run)
        said.append(live(world, run))
    assert said == backtested(world, run, looks)
    first = {
        rule: next(look for look, one in zip(looks, said, strict=True) if one[rule]["state"] == "yes")
        for rule in ("loss_spike", "non_finite")
    }
    assert first == {"loss_spike": 821, "non_finite": 914}
    waited = [one["train_drift"]["at_step"] for one in said]
    assert all(look - 50 < at <= look for look, at in zip(looks, waited, strict=True))
    assert waited[-1] == 1_050 < looks[-1], "a rule of blocks has waited"
    (view,) = timeline(world, run).views
    at = [{j.rule: j.state for j in one}["non_finite"] for one in judge_prefixes(view, [909, 910, 1_009, 1_050])]
    assert at == ["no", "yes", "yes", "no"], "from its own step on, until a block of finite points has ended"


def test_a_late_arrival_changes_only_when_it_is_said(world: JudgedWorld) -> None:
    late, ordered = world.run("late"), world.run("ordered")
    for run in (late, ordered):
        for low, high in itertools.pairwise([0, *LOOKS]):
            send(world, run, TRAIN, low, high)
            if run == ordered:
                send(world, run, HELD, low, high)
    judge = world.judge(None)
    judge.judge_run(late)
    before = live(world, late)
    for low, high in reversed(list(itertools.pairwise([0, *LOOKS]))):
        send(world, late, HELD, low, high)
        judge.judge_run(late)
    judge.judge_run(ordered)
    assert before["train_only_drift"]["state"] == "cannot tell"
    assert live(world, late) == live(world, ordered)
    assert backtested(world, late, LOOKS) == backtested(world, ordered, LOOKS)


def test_what_a_rewind_took_back_was_said_before_it(world: JudgedWorld) -> None:
    run, judge = world.run(), world.judge(None)
    said: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
    for low, high in itertools.pairwise([0, *LOOKS[:12]]):
        send(world, run, TRAIN, low, high)
        send(world, run, HELD, low, high)
        judge.judge_run(run)
        said[0].append(live(world, run))
    with writing(world.engine) as session:
        world.segment(session, run, 100)
    judge.judge_run(run)
    for low, high in itertools.pairwise([100, *LOOKS[4:]]):
        send(world, run, TRAIN, low, high, seed=2)
        judge.judge_run(run)
        said[1].append(live(world, run))
    found = timeline(world, run)
    assert found.spans == [(1, 300), (101, 400)]
    assert found.notes == ["the training went back 1 time; each part is judged with what was live then"]
    for i, looks in ((0, LOOKS[:12]), (1, LOOKS[4:])):
        replayed = judge_prefixes(found.views[i], looks)
        assert [of_points({j.rule: to_body(j) for j in one}) for one in replayed] == said[i]


def test_stretches_and_what_to_do_are_told_of_a_stored_run(world: JudgedWorld) -> None:
    run = world.run()
    send(world, run, TRAIN, 0, 400)
    send(world, run, HELD, 0, 400)
    with writing(world.engine) as session:
        (segment,) = session.query(Segment.id).where(Segment.run_id == run).one()
        for step in (50, 100, 200):
            body = {"value": f"gs://b/{step}"}
            session.add(Event(run_id=run, segment_id=segment, step=step, kind="checkpoint", value=body, at=1.0))
    found = timeline(world, run)
    said = told(found, 10, ["train_drift", "train_only_drift"])
    first = next(one for one in said if one.judgement.state == "yes")
    assert first.before is not None
    assert first.before_step == first.step - 10
    recovery = what_then(found, first)
    assert recovery is not None
    assert recovery.clean is not None
    assert recovery.clean.step in (50, 100)
    assert recovery.cost is not None
    assert recovery.cost.steps == first.step - recovery.clean.step
    assert recovery.cost.tokens == 1024.0 * recovery.cost.steps
    went = stretches(said)
    assert (went[0].rule, went[0].from_step, went[0].to_step) == (first.judgement.rule, first.step, None)


def _deviation(run: int) -> DeclaredDeviation:
    return DeclaredDeviation(
        uuid=uuid4(), run_id=run, description="x", item="data", budgets={TRAIN: -0.1}, from_step=0, end_step=250,
        declared_by="Ann", declared_at=1.0,
    )  # fmt: skip
