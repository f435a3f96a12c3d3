"""What another process on the same database changed is told here, once, and what this one told itself is not again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from delivery_world import DeliveryWorld
from sqlalchemy import Engine

from service.alerts.repository import AlertRepository
from service.broker import Broker, Notice
from service.channels import outbox
from service.channels.outbox import Attempt
from service.channels.sending import Reply
from service.database.engine import writing
from service.database.models import Alert, JudgingChange, Run, RunNote, RunState, VerdictRow
from service.events.elsewhere import Elsewhere


class Listener:
    """This process: its broker, what it was told, and looks by hand."""

    def __init__(self, engine: Engine) -> None:
        self.broker = Broker()
        self.told: list[Notice] = []
        self.elsewhere = Elsewhere(engine, self.broker)
        self.elsewhere.look()  # what is there already is told to nobody

    def news(self) -> list[tuple[str, dict[str, Any]]]:
        """What a look tells to a listener."""

        async def listen() -> list[tuple[str, dict[str, Any]]]:
            with self.broker.listening() as queue:
                count = self.elsewhere.look()
                return [((notice := await queue.get()).kind, notice.body) for _ in range(count)]

        return asyncio.run(listen())


@pytest.fixture
def world(engine: Engine) -> DeliveryWorld:
    world = DeliveryWorld(engine)
    world.channel("https://example.com/in")
    with writing(engine) as session:
        session.add(RunState(run_id=world.run_id, data_version=1, last_data_at=time.time(), last_step=1))
        session.add(VerdictRow(run_id=world.run_id, state="matching", body={}, decided_at=time.time()))
        note = RunNote(uuid=world.run.uuid, run_id=world.run_id, written_by="kim", text="before", at=0.0)
        session.add(note)
    world.alert()
    return world


@pytest.fixture
def listener(world: DeliveryWorld) -> Iterator[Listener]:
    return Listener(world.engine)


def came(world: DeliveryWorld, version: int) -> None:
    """Data came, by whatever process."""
    with writing(world.engine) as session:
        state = session.get_one(RunState, world.run_id)
        state.data_version, state.last_data_at, state.last_step = version, time.time(), 10 * version


def kinds(news: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [kind for kind, _ in news]


def test_what_is_there_already_is_not_told(listener: Listener) -> None:
    assert listener.news() == []


def test_new_data_is_told_once(world: DeliveryWorld, listener: Listener) -> None:
    came(world, 3)
    subject = {"run": str(world.run.uuid), "project": "p"}
    assert listener.news() == [("points", {**subject, "last_step": 30, "version": 3})]
    assert listener.news() == []


def test_own_data_is_not_told_again_but_what_came_after_it_is(world: DeliveryWorld, listener: Listener) -> None:
    came(world, 2)
    listener.broker.publish("points", {"run": str(world.run.uuid), "version": 2})
    assert listener.news() == []
    came(world, 4)  # 4 by another process, after our 3
    listener.broker.publish("points", {"run": str(world.run.uuid), "version": 3})
    assert kinds(listener.news()) == ["points"]
    assert listener.news() == []


def test_a_run_that_was_silent_for_long_is_told_again(world: DeliveryWorld) -> None:
    with writing(world.engine) as session:
        session.get_one(RunState, world.run_id).last_data_at = 1.0
    listener = Listener(world.engine)
    came(world, 2)
    assert kinds(listener.news()) == ["points"]


def test_a_new_verdict_is_told(world: DeliveryWorld, listener: Listener) -> None:
    at = time.time()
    with writing(world.engine) as session:
        verdict = session.get_one(VerdictRow, world.run_id)
        verdict.state, verdict.decided_at = "drifting", at
    [(kind, body)] = listener.news()
    assert (kind, body["state"], body["run"]) == ("verdict", "drifting", str(world.run.uuid))
    assert body["changed"]
    with writing(world.engine) as session:
        session.get_one(VerdictRow, world.run_id).decided_at = at + 0.5
    [(kind, body)] = listener.news()
    assert (kind, body["state"], body["changed"]) == ("verdict", "drifting", False)
    with writing(world.engine) as session:
        session.get_one(VerdictRow, world.run_id).decided_at = at + 1.0
    listener.broker.publish("verdict", {"run": str(world.run.uuid), "at": at + 1.0})
    assert listener.news() == []


def test_changes_of_alerts_are_told_in_order(world: DeliveryWorld, listener: Listener) -> None:
    alert = world.alert(("firing", "joined", "resolved"))
    news = [body for kind, body in listener.news() if kind == "alert"]
    assert [(body["change"], body["number"]) for body in news] == [("firing", 1), ("joined", 2), ("resolved", 3)]
    assert {body["alert"] for body in news} == {str(alert)}
    with writing(world.engine) as session:
        row = AlertRepository(session).by_uuid(alert)
        assert row is not None
        number = AlertRepository(session).add_change(row.alert, "commented", time.time(), {})
        AlertRepository(session).add_change(session.get_one(Alert, 1), "commented", time.time(), {})
    listener.broker.publish("alert", {"alert": str(alert), "number": number})
    news = [body for kind, body in listener.news() if kind == "alert"]
    assert len(news) == 1, "the other one is our own"
    assert news[0]["alert"] != str(alert)


def test_what_became_of_a_message_is_told(world: DeliveryWorld, listener: Listener) -> None:
    def attempt(status: int) -> None:
        with writing(world.engine) as session:
            [claimed] = outbox.claim(session, time.time() + 1.0, 60.0, (), 1)
            outbox.record(session, claimed, Attempt(time.time(), 0.1, Reply(status, {}, b"")), (0.0,), lambda: 0.0)

    attempt(500)
    [(kind, body)] = listener.news()
    assert (kind, body["state"], body["run"]) == ("delivery", "pending", str(world.run.uuid))
    attempt(200)
    [(kind, body)] = listener.news()
    assert (kind, body["state"]) == ("delivery", "delivered")
    assert listener.news() == []


def test_what_people_change_is_told(world: DeliveryWorld, listener: Listener) -> None:
    run = {"run": str(world.run.uuid), "project": "p"}
    with writing(world.engine) as session:
        change = JudgingChange(
            project_id=world.project_id, run_id=None, kind="rule", subject="train_drift", at=0.0, by="kim", reason=""
        )
        session.add(change)
    assert listener.news() == [("settings", {"project": "p"})]
    with writing(world.engine) as session:
        session.get_one(Run, world.run_id).archived_at = 5.0
    assert listener.news() == [("run", run)]
    with writing(world.engine) as session:
        session.delete(session.get_one(RunNote, 1))
    listener.broker.publish("run", run)
    assert listener.news() == []
    with writing(world.engine) as session:
        session.get_one(Run, world.run_id).archived_at = None
    assert listener.news() == [("run", run)]
    assert listener.news() == []
