"""What now: the clean checkpoint of a run that drifted, its cost, and the forks beside it."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest
from fastapi.testclient import TestClient
from judged_world import TRAIN, JudgedWorld
from sqlalchemy import select

from service.database.engine import reading, writing
from service.database.models import Event, Run, RunState, Segment
from service.judgements.view import reference_view
from service.series.writer import write_points

SECONDS = 7.2  # a step
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # what is read is the same on both


def train(world: JudgedWorld, run: int, low: int, high: int, gap_from: int | None = None) -> None:
    """Steps low < step ≤ high beside the reference, 0.9 below it beyond `gap_from`; a step takes 7.2 s."""
    with reading(world.engine) as session:
        series = reference_view(session, session.get_one(Run, run)).metrics[TRAIN]
    inside = (series.steps > low) & (series.steps <= high)
    steps = series.steps[inside]
    values = series.values[inside] - (0.9 * (steps > gap_from) if gap_from is not None else 0.0)
    with writing(world.engine) as session:
        newest = select(Segment.id).where(Segment.run_id == run).order_by(Segment.id.desc()).limit(1)
        segment = session.scalars(newest).one()
        write_points(session, run, segment, steps, 1e9 + SECONDS * steps, None, {TRAIN: (steps, values)})
        session.get_one(RunState, run).last_step = int(np.max(steps))


def checkpoint(world: JudgedWorld, run: int, *steps: int) -> None:
    with writing(world.engine) as session:
        newest = select(Segment.id).where(Segment.run_id == run).order_by(Segment.id.desc()).limit(1)
        segment = session.scalars(newest).one()
        for step in steps:
            value = {"value": {"path": f"gs://b/{step}"} if step % 20 else f"gs://b/{step}"}
            session.add(Event(run_id=run, segment_id=segment, step=step, kind="checkpoint", value=value, at=1.0))


def uuid_of(world: JudgedWorld, run: int) -> UUID:
    with reading(world.engine) as session:
        return session.get_one(Run, run).uuid


@pytest.fixture
def drifted(world: JudgedWorld) -> int:
    run = world.run("parent")
    train(world, run, 0, 300, gap_from=200)
    checkpoint(world, run, 50, 110, 190, 250)
    world.judge(None).judge_run(run)
    return run


def test_a_run_with_nothing_wrong_has_nothing_to_go_back_for(client: TestClient, world: JudgedWorld) -> None:
    run = world.run()
    train(world, run, 0, 300)
    checkpoint(world, run, 100)
    world.judge(None).judge_run(run)
    found = client.get(f"/runs/{uuid_of(world, run)}/recovery").json()
    assert (found["needed"], found["clean"], found["cost"]) == (False, None, None)
    assert client.get(f"/runs/{UUID(int=0)}/recovery").status_code == 404


def test_the_checkpoint_before_the_onset_and_what_going_back_costs(
    client: TestClient, world: JudgedWorld, drifted: int
) -> None:
    uuid = uuid_of(world, drifted)
    found = client.get(f"/runs/{uuid}/recovery").json()
    low, high = found["since_step"]
    assert low <= 201 <= high
    clean = max(s for s in (50, 110, 190) if s < low)
    assert (found["clean"]["step"], found["clean"]["where"]) == (clean, f"gs://b/{clean}")
    assert [c["step"] for c in found["unsure"]] == [s for s in (50, 110, 190, 250) if low <= s < high]
    lost = 300 - clean
    assert (found["cost"]["steps"], found["cost"]["tokens"]) == (lost, 1024.0 * lost)
    assert found["cost"]["hours"] == pytest.approx(lost * SECONDS / 3600.0)
    assert found["cost"]["hours_source"] == "7.2 s a step, median of the newest 299"
    [alert] = client.get("/alerts").json()["items"]
    assert client.get(f"/alerts/{alert['id']}").json()["recovery"] == found


def test_the_message_of_the_alert_holds_it(world: JudgedWorld) -> None:
    world.channel()
    run = world.run()
    train(world, run, 0, 300, gap_from=200)
    checkpoint(world, run, 50)
    world.judge(None).judge_run(run)
    [delivery] = world.deliveries()
    assert delivery.payload["recovery"]["clean"]["step"] == 50
    facts = {fact["label"]: fact["text"] for fact in delivery.payload["facts"]}
    assert facts["What now"].startswith("The last checkpoint that is surely clean is step 50 (gs://b/50); a restart")


def test_its_own_throughput_goes_before_the_clock(client: TestClient, world: JudgedWorld, drifted: int) -> None:
    with writing(world.engine) as session:
        segment = session.scalars(select(Segment).where(Segment.run_id == drifted)).one()
        segment.topology = {"devices": 4}
    steps = list(range(1, 301))
    world.points(drifted, steps, [64.0] * 300, "throughput/tokens_per_second_per_device")
    cost = client.get(f"/runs/{uuid_of(world, drifted)}/recovery").json()["cost"]
    assert cost["hours"] == pytest.approx(cost["steps"] * 1024 / (64 * 4) / 3600)
    assert cost["hours_source"] == "64 tokens/s/device on 4 devices, 1,024 tokens a step"


def test_checkpoints_of_superseded_weights_do_not_count(client: TestClient, world: JudgedWorld) -> None:
    run = world.run()
    train(world, run, 0, 150)
    checkpoint(world, run, 40, 90)
    with writing(world.engine) as session:
        world.segment(session, run, 60)
    train(world, run, 60, 300, gap_from=200)
    world.judge(None).judge_run(run)
    found = client.get(f"/runs/{uuid_of(world, run)}/recovery").json()
    assert found["clean"]["step"] == 40
    assert found["unsure"] == []


def test_a_fork_from_a_clean_step_stays_clean_while_the_parent_goes_on(
    client: TestClient, world: JudgedWorld, drifted: int
) -> None:
    parent = uuid_of(world, drifted)
    clean = world.run("fork", forked_from=parent, forked_at_step=50)
    with writing(world.engine) as session:
        for segment in session.scalars(select(Segment).where(Segment.run_id == clean)):
            segment.start_step, segment.started_at = 50, 2e9
    train(world, clean, 50, 300)
    late = world.run("late", forked_from=parent, forked_at_step=290)
    world.points(late, [291])
    for run in (clean, late):
        world.judge(None).judge_run(run)
    train(world, drifted, 300, 320, gap_from=200)
    world.judge(None).judge_run(drifted)
    found = client.get(f"/runs/{parent}/recovery").json()
    first, second = found["forks"]
    assert (first["name"], first["from_step"], first["started_clean"], first["stays_clean"]) == (
        "fork", 50, "yes", "yes",
    )  # fmt: skip
    assert (second["name"], second["started_clean"]) == ("late", "no")
    assert second["stays_clean"] != "yes"
    assert "The fork fork from step 50 (a clean step) stays clean." in found["summary"]
