"""Every run with news is judged, and what follows is written in one transaction."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from judged_world import TRAIN, JudgedWorld, Scripted
from sqlalchemy import Engine, select

import service.alerts.record
from service.database.engine import reading, writing
from service.database.models import RunState, RunWork, Segment
from service.detect.engine import FAMILY_OF_RULE
from service.detect.inputs import RunView
from service.detect.judgement import Judgement
from service.series.writer import write_points
from service.worker.judge import Judge
from service.worker.loop import lag


@pytest.fixture
def world(engine: Engine) -> JudgedWorld:
    return JudgedWorld(engine)


def always(**said: str) -> Scripted:
    return Scripted(lambda _view: said)


def test_answers_verdict_alert_and_messages_are_written_together(world: JudgedWorld) -> None:
    run, rules = world.run(), always(a="yes", c="cannot tell")
    world.points(run, [1, 2, 3])
    world.channel("https://example.com/1")
    world.channel("https://example.com/2")
    world.judge(rules).judge_due()
    assert {rule: row.state for rule, row in world.judgements(run).items()} == {
        "a": "yes",
        "b": "no",
        "c": "cannot tell",
    }
    assert world.judgements(run)["a"].body["at_step"] == 3
    verdict = world.verdict(run)
    assert verdict is not None
    assert (verdict.state, verdict.body["reference"]) == ("drifting", "lab")
    [alert] = world.alerts()
    assert (alert.family, alert.state, alert.rules, alert.opened_step) == ("curve_and_data", "firing", ["a"], 3)
    assert [delivery.payload["type"] for delivery in world.deliveries()] == ["alert.firing"] * 2
    assert world.broker.kinds() == ["verdict", "alert"]
    assert world.broker.notices[1][1]["change"] == "firing"


def test_the_view_holds_the_run_beside_its_reference(world: JudgedWorld) -> None:
    run, rules = world.run(data={"rows": 3200, "epochs": 1}), always()
    world.points(run, [1, 2, 3], [4.0, 3.0, math.nan])
    world.points(run, [25], [3.5], "heldout/lab/ce_loss")
    world.points(run, [1, 2], [0.1, 0.2], "optim/loss_scale")
    with writing(world.engine) as session:
        world.segment(session, run, 3, topology={"hosts": 4})
    world.judge(rules).judge_due()
    [view] = rules.views
    assert view.metrics["train/ce_loss"].steps.tolist() == [1, 2, 3]
    assert view.metrics["train/ce_loss"].tokens.tolist() == [1024.0, 2048.0, 3072.0]
    assert set(view.metrics) == {"train/ce_loss"}  # the evaluation of superseded weights is gone, other metrics unread
    assert len(view.reference["train/ce_loss"]) > 100
    assert view.heldout == "heldout/lab/ce_loss"
    assert view.reference_name == "lab"
    assert [len(sibling["train/ce_loss"]) > 100 for sibling in view.siblings] == [True] * len(view.siblings)
    assert view.siblings
    assert view.data is not None
    assert (view.data.rows, view.data.epochs) == (3200, 1.0)
    assert [(segment.start_step, segment.hosts) for segment in view.segments] == [(0, 1), (3, 4)]


def test_only_news_are_judged(world: JudgedWorld) -> None:
    run, rules = world.run(), always()
    world.points(run, [1])
    for _ in range(3):
        world.judge(rules).judge_due()
    assert len(rules.views) == 1
    world.points(run, [2])
    world.judge(rules).judge_due()
    assert len(rules.views) == 2
    assert rules.views[0].reference is rules.views[1].reference  # read once per process


def test_a_run_is_not_judged_more_often_than_its_pace(world: JudgedWorld) -> None:
    run, rules = world.run(), always()
    judge = world.judge(rules)
    world.points(run, [1])
    judge.judge_due()
    world.points(run, [2])
    assert 0.0 < judge.judge_due() < 5.0
    assert len(rules.views) == 1


def test_references_and_runs_without_one_are_not_judged(world: JudgedWorld) -> None:
    rules = always(a="yes")
    for name, role, reference in [("x", "reference", "lab"), ("y", "reproduction", None), ("z", "reproduction", "")]:
        world.points(world.run(name, role=role, reference=reference), [1])
    assert world.judge(rules).judge_due() == math.inf
    assert (rules.views, world.alerts()) == ([], [])


def test_an_unknown_reference_is_named(world: JudgedWorld) -> None:
    run = world.run(reference="olmo4")
    world.points(run, [1])
    world.judge(None).judge_due()
    rows = world.judgements(run)
    assert set(rows) == set(FAMILY_OF_RULE)
    assert {row.state for row in rows.values()} == {"cannot tell"}
    assert all("olmo4" in row.body["summary"] for row in rows.values())
    verdict = world.verdict(run)
    assert verdict is not None
    assert verdict.state == "not enough data"


def test_a_new_version_of_the_reference_judges_its_runs_again(world: JudgedWorld) -> None:
    run, rules = world.run(), always()
    world.points(run, [1])
    judge = world.judge(rules)
    judge.judge_due()
    world.reference_version("next")
    world.judge(rules).judge_due()
    assert [view.reference_version == "next" for view in rules.views] == [False, True]
    world.judge(rules).judge_due()
    assert len(rules.views) == 2


def test_a_run_that_cannot_be_judged_stops_no_other_and_is_tried_again_later(
    world: JudgedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = world.run("bad"), world.run("good")
    world.points(bad, [13])
    world.points(good, [1])

    def say(view: RunView) -> Mapping[str, Any]:
        if view.metrics["train/ce_loss"].steps[0] == 13:
            raise ZeroDivisionError("unlucky")
        return {}

    judge = world.judge(Scripted(say))
    with caplog.at_level(logging.ERROR):
        waiting = judge.judge_due()
    assert f"judging run {bad} failed" in caplog.text
    assert (world.verdict(bad), waiting > 0.5) == (None, True)
    assert world.verdict(good) is not None
    world.judge(always()).judge_due()  # another process, or the same once it is mended
    assert world.verdict(bad) is not None


def test_what_cannot_be_written_whole_is_not_written_at_all(
    world: JudgedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, rules = world.run(), always(a="yes")
    world.points(run, [1])
    world.channel()

    def fail(*_args: object) -> int:
        raise RuntimeError("in the middle")

    with monkeypatch.context() as patched:
        patched.setattr(service.alerts.record, "enqueue", fail)
        world.judge(rules).judge_due()
    assert (world.alerts(), world.judgements(run), world.verdict(run)) == ([], {}, None)
    assert world.broker.kinds() == []
    world.judge(rules).judge_due()
    assert len(world.alerts()) == len(world.deliveries()) == 1


def test_a_life_is_one_alert_with_one_message_of_each_kind(world: JudgedWorld) -> None:
    run, clock = world.run(), [1000.0]
    world.channel()
    story = [
        {"a": "yes"}, {"a": "yes"}, {"a": "yes", "b": "yes"}, {"a": "cannot tell", "b": "no"}, {"a": "no"},
        {"a": "yes"}, {"a": "no"}, {"a": "no"}, {},
    ]  # fmt: skip
    for step, said in enumerate(story, 1):
        world.points(run, [step])
        clock[0] += 31.0
        world.judge(always(**said), clock=lambda: clock[0]).judge_due()  # a new process each time
    [alert] = world.alerts()
    assert (alert.state, alert.rules, alert.resolved_at) == ("resolved", ["a", "b"], clock[0])
    assert world.changes() == [
        "firing", "joined", "evidence", "evidence", "clearing", "reopened", "evidence", "evidence", "clearing",
        "resolved",
    ]  # fmt: skip
    messages = [delivery.payload["type"] for delivery in world.deliveries()]
    assert messages == ["alert.firing", "alert.updated", "alert.resolved"]
    world.points(run, [99])
    world.judge(always(a="yes")).judge_due()
    assert [alert.state for alert in world.alerts()] == ["resolved", "firing"]


def test_families_have_alerts_of_their_own(world: JudgedWorld) -> None:
    run = world.run()
    world.points(run, [1])
    world.judge(always(a="yes", c="yes")).judge_due()
    assert sorted(alert.family for alert in world.alerts()) == ["curve_and_data", "stability"]


def test_two_judges_at_once_make_one_alert(world: JudgedWorld) -> None:
    """Another process judges the run while this one does."""
    run = world.run()
    world.channel()
    world.points(run, [1])
    other: list[bool] = []

    def say(_view: RunView) -> Mapping[str, Any]:
        other.append(world.judge(always(a="yes")).judge_run(run))
        return {"a": "yes"}

    mine = world.judge(Scripted(say)).judge_run(run)
    assert sorted([mine, *other]) == [False, True]
    assert len(world.alerts()) == len(world.deliveries()) == 1


def test_numbers_that_are_none_can_be_stored(world: JudgedWorld) -> None:
    class Odd(Scripted):
        def evaluate(self, view: RunView, cache: Any) -> list[Judgement]:
            return [Judgement("a", "yes", 1, "odd \x00", value=math.nan, interval=(-math.inf, math.inf), unit="nats")]

    run = world.run()
    world.points(run, [1])
    world.judge(Odd(lambda _view: {})).judge_due()
    body = world.judgements(run)["a"].body
    assert (body["value"], body["interval"]) == ("NaN", ["-Infinity", "Infinity"])
    assert world.alerts()[0].judgements["a"]["value"] == "NaN"


def test_lag_is_the_age_of_what_waits(world: JudgedWorld) -> None:
    run = world.run()
    with reading(world.engine) as session:
        assert lag(session, 0.0) == 0.0
    world.points(run, [1])
    with reading(world.engine) as session:
        assert lag(session, 4e9) > 1e9
    world.judge(always()).judge_due()
    with reading(world.engine) as session:
        assert lag(session, 4e9) == 0.0
        assert session.get_one(RunWork, (run, "judge")).done_version == 1


def silent_run(world: JudgedWorld, now: float) -> int:
    """A run whose trainer logged a step a second until it died at `now`."""
    run = world.run()
    steps = np.arange(1, 101)
    with writing(world.engine) as session:
        segment = session.scalars(select(Segment.id).where(Segment.run_id == run)).one()
        losses = {TRAIN: (steps, np.full(100, 3.0))}
        write_points(session, run, segment, steps, now - 100.0 + steps, None, losses)
        session.get_one(RunState, run).last_data_at = now
    return run


def at(judge: Judge, clock: list[float], now: float) -> float:
    """Judge what is due at this time, however lately it was judged."""
    clock[0] = now
    judge._paces.clear()
    return judge.judge_due()


def test_a_run_whose_trainer_is_dead_is_judged_again_without_news(world: JudgedWorld) -> None:
    clock = [1e9]
    judge = world.judge(None, clock=lambda: clock[0])
    run = silent_run(world, 1e9)
    at(judge, clock, 1e9 + 1.0)
    assert world.judgements(run)["data_stopped"].state == "no"
    assert at(judge, clock, 1e9 + 11.0) < math.inf
    assert world.judgements(run)["data_stopped"].body["limit"] == 120.0  # by now its own pattern was looked at
    assert at(judge, clock, 1e9 + 71.0) == pytest.approx(49.0)
    assert world.judgements(run)["data_stopped"].decided_at == 1e9 + 11.0  # nothing was due
    assert not [alert for alert in world.alerts() if alert.family == "operation"]
    at(judge, clock, 1e9 + 131.0)
    assert world.judgements(run)["data_stopped"].state == "yes"
    [alert] = [alert for alert in world.alerts() if alert.family == "operation"]
    assert (alert.rules, alert.state) == (["data_stopped"], "firing")
    assert at(judge, clock, 2e9) == math.inf  # it was said; a dead run costs nothing more
    assert world.judgements(run)["data_stopped"].decided_at == 1e9 + 131.0
    world.points(run, [101])
    with writing(world.engine) as session:
        session.get_one(RunState, run).last_data_at = 2e9
    at(judge, clock, 2e9)
    assert world.judgements(run)["data_stopped"].state == "no"


def test_another_process_goes_on_watching_and_counts_only_the_time_it_listens(world: JudgedWorld) -> None:
    clock = [1e9 + 1.0]
    run = silent_run(world, 1e9)
    world.judge(None, clock=lambda: clock[0]).judge_due()
    clock[0] += 5_000.0  # the service was down
    judge = world.judge(None, clock=lambda: clock[0])
    judge.judge_due()
    assert world.judgements(run)["data_stopped"].state == "cannot tell"
    at(judge, clock, clock[0] + 121.0)
    assert world.judgements(run)["data_stopped"].state == "yes"


def test_a_finished_run_is_watched_no_more(world: JudgedWorld) -> None:
    clock = [1e9 + 20.0]
    run = silent_run(world, 1e9)
    with writing(world.engine) as session:
        session.scalars(select(Segment).where(Segment.run_id == run)).one().finished_at = 1e9
    judge = world.judge(None, clock=lambda: clock[0])
    assert judge.judge_due() == math.inf
    clock[0] += 1e5
    assert judge.judge_due() == math.inf
    assert world.judgements(run)["data_stopped"].state == "no"
