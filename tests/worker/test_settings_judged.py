"""Settings, mutes, deviations and rewinds, from the database through the judge into alerts."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from judged_world import TRAIN, JudgedWorld, Scripted
from sqlalchemy import Engine, select

from service.alerts.episodes import WITHDRAWN
from service.database.engine import reading, writing
from service.database.models import AlertChange, DeclaredDeviation, Run, RunState, RunWork, Segment
from service.database.models import RuleSetting as SettingRow
from service.judgements.view import build_view, reference_view
from service.rules.repository import Scope, SettingRepository
from service.series.writer import write_points

ANN = {"set_by": "Ann", "reason": "other shuffle", "set_at": 1.0}


@pytest.fixture
def world(engine: Engine) -> JudgedWorld:
    return JudgedWorld(engine)


def put(world: JudgedWorld, run: int, rule: str, *, whole: bool = False, **values: Any) -> None:
    """A setting and its change, as the API writes them."""
    with writing(world.engine) as session:
        project = session.get_one(Run, run).project_id
        scope = Scope(project, None if whole else run)
        row = SettingRepository(session).one(scope, rule) or SettingRow(
            project_id=project, run_id=scope.run_id, rule=rule
        )
        session.add(row)
        for name, value in (ANN | values).items():
            setattr(row, name, value)
        session.flush()
        SettingRepository(session).record(
            scope, "rule", rule, by=row.set_by, reason=row.reason, at=row.set_at, old=None, new=values
        )


def beside(world: JudgedWorld, run: int, by: float, upto: int = 400, since: int = 0) -> None:
    """Points beside the lab's reference by a constant."""
    with reading(world.engine) as session:
        series = reference_view(session, session.get_one(Run, run)).metrics[TRAIN]
    inside = (series.steps <= upto) & (series.steps > since)
    world.points(run, series.steps[inside].tolist(), (series.values[inside] + by).tolist())


def test_the_run_goes_before_the_project_before_what_is_shipped_part_by_part(world: JudgedWorld) -> None:
    run = world.run()
    beside(world, run, 0.0)
    put(world, run, "train_drift", whole=True, tolerance=0.5, minimum_evidence=10)
    put(world, run, "train_drift", tolerance=0.25, set_by="Bo", reason="")
    with reading(world.engine) as session:
        setting = build_view(session, session.get_one(Run, run)).settings["train_drift"]
    assert (setting.tolerance, setting.minimum) == (0.25, 10)
    assert setting.tolerance_source == "set by Bo for this run"
    assert setting.minimum_source == "set by Ann for project lab: other shuffle"
    world.judge(None).judge_due()
    body = world.judgements(run)["train_drift"].body
    assert body["limit"] == 0.25
    assert body["limit_source"].startswith("set by Bo for this run; shipped: ")


def test_a_change_judges_anew_once_and_only_the_runs_it_concerns(world: JudgedWorld) -> None:
    mine, other = world.run("mine"), world.run("other")
    for run in (mine, other):
        beside(world, run, 0.0, 50)
    rules = Scripted(lambda _view: {})
    judge = world.judge(rules)
    judge.judge_due()
    assert len(rules.views) == 2
    put(world, mine, "train_drift", tolerance=0.5)
    for _ in range(2):
        world.judge(rules).judge_due()  # also a process that has just started
    assert [bool(view.settings) for view in rules.views] == [False, False, True]
    put(world, mine, "train_drift", whole=True, tolerance=0.4)
    world.judge(rules).judge_due()
    assert len(rules.views) == 5


def test_a_wider_tolerance_ends_the_alarm_and_a_narrower_one_raises_it(world: JudgedWorld) -> None:
    run = world.run()
    beside(world, run, -0.8)
    world.judge(None).judge_due()
    assert world.judgements(run)["train_drift"].state == "yes"
    put(world, run, "train_drift", tolerance=2.0)
    world.judge(None).judge_due()
    assert world.judgements(run)["train_drift"].state != "yes"
    put(world, run, "train_drift", tolerance=0.1)
    world.judge(None).judge_due()
    assert world.judgements(run)["train_drift"].state == "yes"


def test_a_muted_rule_is_judged_and_shown_and_raises_nothing_until_the_mute_ends(world: JudgedWorld) -> None:
    run, clock = world.run(), [100.0]
    world.points(run, [1])
    put(world, run, "a", muted=True, muted_until=200.0)
    rules = Scripted(lambda _view: {"a": "yes"})
    judge = world.judge(rules, clock=lambda: clock[0])
    judge.judge_due()
    assert (world.judgements(run)["a"].state, world.alerts()) == ("yes", [])
    clock[0] = 199.0
    world.judge(rules, clock=lambda: clock[0]).judge_due()
    assert len(rules.views) == 1
    clock[0] = 201.0
    for _ in range(2):
        world.judge(rules, clock=lambda: clock[0]).judge_due()
    assert [alert.rules for alert in world.alerts()] == [["a"]]
    assert len(rules.views) == 2, "judged anew when the mute ended, without new points, once"


def test_muting_the_only_rule_of_an_open_alert_resolves_it_with_the_reason(world: JudgedWorld) -> None:
    run = world.run()
    world.points(run, [1])
    rules = Scripted(lambda _view: {"a": "yes"})
    world.judge(rules).judge_due()
    put(world, run, "a", muted=True)
    world.judge(rules).judge_due()
    [alert] = world.alerts()
    assert alert.state == "resolved"
    assert alert.judgements["a"][WITHDRAWN] == "muted, set by Ann for this run: other shuffle"
    assert world.changes() == ["firing", "withdrawn", "resolved"]


def test_a_rule_that_is_turned_off_is_not_judged_and_says_by_whom(world: JudgedWorld) -> None:
    run = world.run()
    beside(world, run, -0.8)
    world.judge(None).judge_due()
    [alert] = world.alerts()
    joined = list(alert.rules)
    assert "train_drift" in joined
    for rule in joined:
        put(world, run, rule, enabled=False)
    world.judge(None).judge_due()
    row = world.judgements(run)["train_drift"]
    assert (row.state, row.body["summary"]) == (
        "cannot tell", "Not judged: turned off, set by Ann for this run: other shuffle.",
    )  # fmt: skip
    assert world.alerts()[0].state == "resolved"
    verdict = world.verdict(run)
    assert verdict is not None
    assert verdict.state == "not enough data"


def test_fewer_observations_than_asked_for_cannot_tell(world: JudgedWorld) -> None:
    run = world.run()
    beside(world, run, -0.8)
    put(world, run, "train_drift", minimum_evidence=401)
    world.judge(None).judge_due()
    body = world.judgements(run)["train_drift"].body
    assert body["state"] == "cannot tell"
    assert body["summary"].startswith(
        "Cannot tell yet: 400 of 401 observations (set by Ann for this run: other shuffle); by them the answer would "
        "be yes: Train loss has drifted below"
    )


class TestDeviations:
    def declare(self, world: JudgedWorld, run: int, **more: Any) -> None:
        with writing(world.engine) as session:
            values = {"from_step": 0, "end_step": 400, "item": "data", "budgets": {TRAIN: -0.9}} | more
            session.add(
                DeclaredDeviation(
                    uuid=uuid4(), run_id=run, description="easier data", declared_by="Ann", declared_at=1.0, **values
                )
            )
            project = session.get_one(Run, run).project_id
            SettingRepository(session).record(
                Scope(project, run), "deviation", "x", by="Ann", reason="", at=1.0, old=None, new={}
            )

    def test_a_declared_one_explains_the_gap_and_the_verdict_rests_on_it(self, world: JudgedWorld) -> None:
        run = world.run()
        beside(world, run, -0.8)
        world.judge(None).judge_due()
        verdict = world.verdict(run)
        assert verdict is not None
        assert verdict.state == "drifting"
        self.declare(world, run)
        world.judge(None).judge_due()
        verdict = world.verdict(run)
        assert verdict is not None
        assert verdict.state == "consistent"
        assert "rests on declared deviations: easier data (data)" in verdict.body["because"]

    def test_an_end_by_date_is_the_last_step_logged_by_then(self, world: JudgedWorld) -> None:
        run = world.run()
        beside(world, run, 0.0, 100)
        with writing(world.engine) as session:
            segment = session.scalars(select(Segment.id).where(Segment.run_id == run)).one()
            steps = np.arange(1, 101)
            write_points(session, run, segment, steps, steps + 1000.0, None, {})
            session.get_one(RunState, run).last_data_at = 1100.0
        for end, step in [(1042.5, 42), (900.0, 0), (5000.0, None)]:
            self.declare(world, run, end_step=None, end_at=end)
            with reading(world.engine) as session:
                assert build_view(session, session.get_one(Run, run)).deviations[-1].end_step == step


class TestRewinds:
    def alarmed(self, world: JudgedWorld) -> int:
        """A run whose drift began after step 200 and was raised at step 300."""
        run = world.run()
        beside(world, run, 0.0, 200)
        beside(world, run, -0.9, 300, 200)
        world.judge(None).judge_due()
        assert [alert.state for alert in world.alerts()] == ["firing"]
        return run

    def rewind(self, world: JudgedWorld, run: int, step: int) -> str:
        with writing(world.engine) as session:
            world.segment(session, run, step)
            state = session.get_one(RunState, run)
            state.data_version += 1
            newest = session.scalars(select(Segment).where(Segment.run_id == run).order_by(Segment.id.desc())).first()
            assert newest is not None
            return str(newest.uuid)

    def test_what_the_superseded_part_raised_is_taken_back(self, world: JudgedWorld) -> None:
        run = self.alarmed(world)
        world.channel()
        segment = self.rewind(world, run, 180)
        world.judge(None).judge_due()
        [alert] = world.alerts()
        assert alert.state == "resolved"
        with reading(world.engine) as session:
            last = session.scalars(select(AlertChange).order_by(AlertChange.number.desc())).first()
        assert last is not None
        assert last.body["reason"] == f"superseded from step 180 by segment {segment}"
        [delivery] = world.deliveries()
        assert delivery.payload["change"]["reason"] == last.body["reason"]
        assert delivery.payload["summary"][0] == f"Superseded from step 180 by segment {segment}."
        with reading(world.engine) as session:
            assert session.get_one(RunWork, (run, "judge")).done_segment is not None

    def test_points_that_came_before_it_was_judged_change_nothing_in_that(self, world: JudgedWorld) -> None:
        run = self.alarmed(world)
        self.rewind(world, run, 180)
        beside(world, run, 0.0, 400, 180)
        world.judge(None).judge_due()
        assert [alert.state for alert in world.alerts()] == ["resolved"]

    def test_a_drift_that_the_live_part_still_shows_stays(self, world: JudgedWorld) -> None:
        run = world.run()
        beside(world, run, -0.9, 300)
        world.judge(None).judge_due()
        self.rewind(world, run, 280)
        world.judge(None).judge_due()
        assert [alert.state for alert in world.alerts()] == ["firing"]

    def test_a_restart_that_supersedes_nothing_takes_nothing_back(self, world: JudgedWorld) -> None:
        run = self.alarmed(world)
        self.rewind(world, run, 300)
        world.judge(None).judge_due()
        assert [alert.state for alert in world.alerts()] == ["firing"]
