"""Who is judged when: what is urgent first, what must be read from its start in between, several runs in one write."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from judged_world import TRAIN, JudgedWorld, Scripted
from sqlalchemy import Engine, select

from service.database.engine import reading, writing
from service.database.models import Fingerprint, Journal, JudgingChange, Metric, Run, Segment
from service.detect.inputs import RunView
from service.fingerprints.hashes import pack
from service.judgements.kept import KeptRuns
from service.judgements.repository import JudgementRepository
from service.series.journal import Payload, encode
from service.series.packing import compress
from service.worker import judge as judging
from service.worker.judge import Judge
from service.worker.urgency import Urgency


class Named(Scripted):
    """Notes which runs are judged in which order, by the value of their first loss."""

    def __init__(self, said: Mapping[float, Mapping[str, Any]] | None = None) -> None:
        super().__init__(lambda view: (said or {}).get(self.name_of(view), {}))

    @staticmethod
    def name_of(view: RunView) -> float:
        return float(view.metrics[TRAIN].values[0])

    @property
    def order(self) -> list[float]:
        return [self.name_of(view) for view in self.views]


def judged_once(world: JudgedWorld, count: int) -> tuple[list[int], Named, Judge]:
    """So many runs with one point each, the loss of run i being i, that were judged once."""
    runs = [world.run(f"r{i}") for i in range(count)]
    for i, run in enumerate(runs):
        world.points(run, [1], [float(i)])
    rules = Named()
    judge = world.judge(rules)
    judge.judge_due()
    rules.views.clear()
    return runs, rules, judge


@pytest.fixture
def world(engine: Engine) -> JudgedWorld:
    return JudgedWorld(engine)


@pytest.fixture
def one_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run may be judged again at once."""
    for name in ("FIRST_INTERVAL", "INTERVAL", "REST"):
        monkeypatch.setattr(judging, name, 0.0)


def arrive(world: JudgedWorld, run: int, steps: Sequence[int], value: float) -> None:
    """Points as they come, not sealed yet."""
    values = np.full(len(steps), value)
    world.points(run, steps, values.tolist())
    with writing(world.engine) as session:
        metric = session.scalars(select(Metric.id).where(Metric.run_id == run, Metric.name == TRAIN)).one()
        payload = Payload([metric], np.array(steps, np.int64).tobytes(), values.tobytes())
        session.add(
            Journal(run_id=run, segment_id=segment_of(session, run), steps=len(steps), points=len(steps),
                    payload=encode(payload), received_at=0.0)
        )  # fmt: skip


def test_runs_that_have_nothing_new_to_tell_are_written_together(
    world: JudgedWorld, monkeypatch: pytest.MonkeyPatch, one_pace: None
) -> None:
    writes: list[None] = []

    @contextmanager
    def counted(engine: Any) -> Any:
        writes.append(None)
        with writing(engine) as session:
            yield session

    monkeypatch.setattr(judging, "TOGETHER", 60.0)
    runs = [world.run(f"r{i}") for i in range(5)]
    judge = world.judge(Named())
    for i, run in enumerate(runs):
        world.points(run, [1], [float(i)])
    judge.judge_due()
    for run in runs:
        world.points(run, [2], [3.0])
    monkeypatch.setattr(judging, "writing", counted)
    judge.judge_due()
    assert len(writes) == 1
    assert {row.at_step for run in runs for row in world.judgements(run).values()} == {2}


def test_an_alert_waits_for_no_other_run(world: JudgedWorld, monkeypatch: pytest.MonkeyPatch, one_pace: None) -> None:
    monkeypatch.setattr(judging, "TOGETHER", 60.0)
    runs = [world.run(f"r{i}") for i in range(3)]
    for i, run in enumerate(runs):
        world.points(run, [1], [float(i)])
    alerts: list[int] = []

    class Noting(Named):
        def evaluate(self, view: RunView, cache: Any) -> Any:
            alerts.append(len(world.alerts()))
            return super().evaluate(view, cache)

    world.judge(Noting({1.0: {"a": "yes"}})).judge_due()
    assert alerts == [0, 0, 1]  # it was written before the third run was looked at


def test_what_is_urgent_is_judged_first(world: JudgedWorld, one_pace: None) -> None:
    runs, rules, judge = judged_once(world, 4)
    for run in runs:
        world.points(run, [2], [2.5])
    with writing(world.engine) as session:
        world.segment(session, runs[2], start_step=2)
    judge.judge_due()
    assert rules.order[0] == 2.0
    assert sorted(rules.order) == [0.0, 1.0, 2.0, 3.0]


def test_what_an_alert_rests_on_goes_before_blocks_that_end_and_who_brings_most_before_the_others(
    world: JudgedWorld, one_pace: None
) -> None:
    runs, rules, judge = judged_once(world, 5)
    arrive(world, runs[0], [2], 2.5)
    arrive(world, runs[1], [50], 2.5)
    arrive(world, runs[2], range(2, 401), 2.5)
    arrive(world, runs[3], [2], math.nan)
    arrive(world, runs[4], range(2, 102), 2.5)
    judge.judge_due()
    assert rules.order == [3.0, 2.0, 4.0, 1.0, 0.0]


def test_who_has_waited_longest_is_judged_however_much_is_urgent(
    world: JudgedWorld, monkeypatch: pytest.MonkeyPatch, one_pace: None
) -> None:
    monkeypatch.setattr(judging, "TOGETHER", 0.0)
    monkeypatch.setattr(judging, "HURRIED", 1e-9)
    waiting, urgent = world.run("waiting"), world.run("urgent")
    for i, run in enumerate((waiting, urgent)):
        world.points(run, [1], [float(i)])
    rules = Named()
    judge = world.judge(rules)
    judge.judge_due()
    rules.views.clear()
    world.points(waiting, [2], [2.5])
    for step in (50, 100):
        arrive(world, urgent, [step], 2.5)
        judge.judge_some()
    assert rules.order[:2] == [1.0, 0.0]


def test_runs_that_must_be_read_come_after_those_that_are_known(
    world: JudgedWorld, monkeypatch: pytest.MonkeyPatch, one_pace: None
) -> None:
    monkeypatch.setattr(judging, "TOGETHER", 0.0)
    old = world.run("old")
    world.points(old, [1], [0.0])
    rules = Named()
    judge = world.judge(rules)
    judge.judge_due()
    new = [world.run(f"new{i}") for i in range(3)]
    for run in new:
        world.points(run, [1], [1.0])
    world.points(old, [2], [2.0])
    rules.views.clear()
    assert judge.judge_some() == 0.0  # others wait
    assert rules.order == [0.0]
    for step in range(3, 3 + judging.TURNS):
        world.points(old, [step], [2.0])
        judge.judge_some()
    assert rules.order[: judging.TURNS + 1] == [0.0] * judging.TURNS + [1.0]  # and not for ever
    judge.judge_due()
    assert all(world.verdict(run) for run in new)


def test_what_people_have_said_of_a_run_is_judged_however_much_comes_of_others(
    world: JudgedWorld, monkeypatch: pytest.MonkeyPatch, one_pace: None
) -> None:
    monkeypatch.setattr(judging, "TOGETHER", 0.0)
    silent, busy = world.run("silent"), [world.run(f"busy{i}") for i in range(3)]
    knows = KeptRuns.knows  # for one of them there is no room: it is read from its start each time
    monkeypatch.setattr(KeptRuns, "knows", lambda self, run: run != busy[0] and knows(self, run))
    world.points(silent, [1], [0.0])
    for run in busy:
        world.points(run, [1], [1.0])
    rules = Named()
    judge = world.judge(rules)
    judge.judge_due()
    rules.views.clear()
    with writing(world.engine) as session:
        project = session.get_one(Run, silent).project_id
        session.add(
            JudgingChange(project_id=project, run_id=silent, kind="rule", subject="a", at=0.0, by="kim", reason="")
        )
    for step in range(2, 4 + 2 * judging.TURNS):
        for run in busy:
            world.points(run, [step], [1.0])
        judge.judge_some()
    assert rules.order.count(0.0) == 1
    assert rules.order.count(1.0) > 1


def test_one_run_that_cannot_be_written_holds_up_no_other(
    world: JudgedWorld, monkeypatch: pytest.MonkeyPatch, one_pace: None
) -> None:
    monkeypatch.setattr(judging, "TOGETHER", 60.0)
    runs = [world.run(f"r{i}") for i in range(3)]
    for i, run in enumerate(runs):
        world.points(run, [1], [float(i)])
    real = judging.record

    def fail(session: Any, run: Any, *args: Any, **more: Any) -> Any:
        if run.run_id == runs[1]:
            raise RuntimeError("this one")
        return real(session, run, *args, **more)

    monkeypatch.setattr(judging, "record", fail)
    world.judge(Named()).judge_due()
    assert [world.verdict(run) is not None for run in runs] == [True, False, True]


class Constant(Named):
    """Rule a says the same at every step, the others say at which step they say it."""

    def evaluate(self, view: RunView, cache: Any) -> Any:
        said = super().evaluate(view, cache)
        return [replace(one, at_step=1, summary="ever the same") if one.rule == "a" else one for one in said]


def test_answers_that_stand_are_not_written_again(world: JudgedWorld, one_pace: None) -> None:
    now, runs = [100.0], [world.run("r0"), world.run("r1")]
    judge = world.judge(Constant(), clock=lambda: now[0])
    for at in (100.0, 200.0):
        now[0] = at
        for run in runs:
            world.points(run, [int(at)], [1.0])
        judge.judge_due()
    for run in runs:
        assert {rule: row.decided_at for rule, row in world.judgements(run).items()} == {
            "a": 100.0,
            "b": 200.0,
            "c": 200.0,
        }
        verdict = world.verdict(run)
        assert verdict is not None
        assert verdict.decided_at == 200.0
    with reading(world.engine) as session:
        assert JudgementRepository(session).due() == []
        done = {run: JudgementRepository(session).work(run) for run in runs}
    assert all(work is not None and work.done_at == 200.0 for work in done.values())


def test_what_another_process_has_said_is_written_over(world: JudgedWorld, one_pace: None) -> None:
    run = world.run()
    one, other = world.judge(Constant()), world.judge(Constant({3.0: {"a": "yes"}}))
    states: list[str] = []
    for step, judge in enumerate((one, other, one), 1):
        world.points(run, [step], [3.0])
        judge.judge_due()
        states.append(world.judgements(run)["a"].state)
    assert states == ["no", "yes", "no"]
    verdict = world.verdict(run)
    assert verdict is not None
    assert verdict.state == "consistent"


def segment_of(session: Any, run: int) -> int:
    return session.scalars(select(Segment.id).where(Segment.run_id == run)).first()


def test_rows_that_were_read_before_are_urgent_and_others_are_not(world: JudgedWorld) -> None:
    known, fresh = world.run("known"), world.run("fresh")
    urgency = Urgency(lambda run, hashes: run == known and 7 in hashes)
    with reading(world.engine) as session:
        assert urgency.look(session) == {}
    with writing(world.engine) as session:
        for run in (known, fresh):
            session.add(
                Fingerprint(run_id=run, segment_id=segment_of(session, run), kind="rows", host=0, sample=1, points=1,
                            seen=b"", steps=compress(np.array([1])), hashes=np.array([7], np.uint64).tobytes())
            )  # fmt: skip
    with reading(world.engine) as session:
        assert urgency.look(session) == {known: math.inf}
        urgency.judged([known])
        assert urgency.look(session) == {}


def test_of_all_that_is_sent_about_rows_only_those_read_before_and_hits_are_urgent(world: JudgedWorld) -> None:
    """Each kind is read as it is stored: windows are packed."""
    runs = {kind: world.run(kind) for kind in ("rows", "windows", "heldout", "heldout_hits")}
    urgency = Urgency(lambda run, hashes: bool((hashes == 7).any()))
    with reading(world.engine) as session:
        assert urgency.look(session) == {}
    hashes = np.array([7, 2**40 + 1, 2**63 + 5], np.uint64)
    with writing(world.engine) as session:
        for kind, run in runs.items():
            session.add(
                Fingerprint(run_id=run, segment_id=segment_of(session, run), kind=kind, host=0, sample=1, points=3,
                            seen=b"", steps=compress(np.array([1, 1, 1])), hashes=pack(kind, hashes))
            )  # fmt: skip
    with reading(world.engine) as session:
        assert urgency.look(session) == {runs["rows"]: math.inf, runs["heldout_hits"]: math.inf}
