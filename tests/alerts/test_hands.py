"""What people do with alerts: kept with who and from where, and what follows from it for messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from alert_world import AlertWorld, client_on
from sqlalchemy import Engine, update

from service.alerts.due import act_on_time
from service.alerts.hands import mute_end
from service.broker import Broker
from service.database.engine import open_engine, writing
from service.database.models import Alert, Channel, Delivery

one_database = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # which one does not matter


@pytest.fixture
def world(engine: Engine, database_url: str) -> Iterator[AlertWorld]:
    with client_on(database_url) as client:
        made = AlertWorld(engine, client)
        made.world.channel()
        yield made


def mute_until(world: AlertWorld, at: float) -> None:
    """The API mutes by the machine's clock; the world has one of its own."""
    with writing(world.world.engine) as session:
        session.execute(update(Alert).values(muted_until=at))


class TestMute:
    def test_messages_wait_evidence_does_not_and_its_end_says_how_it_stands_once(self, world: AlertWorld) -> None:
        world.say(a="yes")
        alert = world.act(world.only(), "mute", minutes=60, note="we know")
        assert alert["muted_until"] is not None
        mute_until(world, world.now + 100.0)
        world.say(a="yes", b="yes")
        assert world.messages() == [("alert.firing", "firing")]
        assert world.pass_time(50.0) == 0
        assert [world.pass_time(60.0), world.pass_time(1.0)] == [1, 0]
        assert world.messages() == [("alert.firing", "firing"), ("alert.updated", "unmuted")]
        after = world.only()
        assert after["muted_until"] is None
        assert [change["kind"] for change in after["changes"]] == ["firing", "muted", "joined", "unmuted"]
        assert world.world.deliveries()[-1].payload["alert"]["rules"] == ["a", "b"]

    def test_no_message_at_its_end_where_nothing_says_yes_any_more(self, world: AlertWorld) -> None:
        world.say(a="yes")
        world.act(world.only(), "mute", minutes=1)
        mute_until(world, world.now + 10.0)
        world.say()
        assert world.pass_time(20.0) == 1
        assert world.messages() == [("alert.firing", "firing")]

    def test_its_one_resolved_message_is_sent_all_the_same(self, world: AlertWorld) -> None:
        world.say(a="yes")
        world.act(world.only(), "mute", minutes=60)
        mute_until(world, world.now + 1000.0)
        world.say()
        world.say(100.0)
        assert world.messages() == [("alert.firing", "firing"), ("alert.resolved", "resolved")]
        assert world.pass_time(2000.0) == 0

    @one_database
    def test_ended_by_hand_it_says_how_it_stands(self, world: AlertWorld) -> None:
        world.say(a="yes")
        alert = world.only()
        world.act(alert, "mute", minutes=60)
        assert world.act(alert, "unmute")["muted_until"] is None
        world.act(alert, "unmute")
        assert world.messages() == [("alert.firing", "firing"), ("alert.updated", "unmuted")]

    @one_database
    def test_what_is_no_end(self, world: AlertWorld) -> None:
        world.say(a="yes")
        past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        far = (datetime.now(UTC) + timedelta(days=60)).isoformat()
        for body in ({}, {"until": past}, {"until": far}, {"minutes": 0}, {"minutes": 5, "until": far}, {"until": "x"}):
            world.act(world.only(), "mute", 422, **body)
        with pytest.raises(ValueError, match="later than now"):
            mute_end(0.0, float("nan"), None, 10.0)

    def test_several_processes_end_it_once(self, world: AlertWorld, database_url: str) -> None:
        world.say(a="yes")
        world.act(world.only(), "mute", minutes=60)
        mute_until(world, world.now)
        engines = [open_engine(database_url) for _ in range(3)]
        began = threading.Barrier(3)

        def end(engine: Engine) -> None:
            began.wait()
            act_on_time(engine, Broker(), "http://pacenote", world.now + 1.0)

        threads = [threading.Thread(target=end, args=(engine,)) for engine in engines]
        for thread in threads:
            thread.start()
        for thread, engine in zip(threads, engines, strict=True):
            thread.join()
            engine.dispose()
        assert world.messages() == [("alert.firing", "firing"), ("alert.updated", "unmuted")]


class TestResolve:
    def test_it_stays_closed_until_it_has_cleared_and_come_back(self, world: AlertWorld) -> None:
        world.say(a="yes")
        alert = world.act(world.only(), "resolve", note="another tokenizer")
        assert (alert["state"], alert["muted_until"]) == ("resolved", None)
        world.act(alert, "resolve")  # once is enough
        last = world.world.deliveries()[-1].payload
        assert last["change"]["reason"] == "resolved by kim: another tokenizer"
        assert last["summary"][0] == "Resolved by kim: another tokenizer."
        world.say(a="yes")
        world.say()
        world.say(30.0, a="yes")  # back within the clear time: still the same
        world.say()
        world.say(61.0)
        world.say(a="yes")
        assert world.messages() == [
            ("alert.firing", "firing"), ("alert.resolved", "resolved"), ("alert.firing", "firing"),
        ]  # fmt: skip
        first, second = reversed(world.client.get("/alerts").json()["items"])
        assert (first["id"], second["state"]) == (alert["id"], "firing")
        history = world.client.get(f"/alerts/{first['id']}").json()["changes"]
        assert [change["kind"] for change in history] == ["firing", "resolved", "settled"]

    def test_another_rule_is_news(self, world: AlertWorld) -> None:
        world.say(a="yes")
        world.act(world.only(), "resolve")
        world.say(a="yes", b="yes")
        assert world.only(state="open")["rules"] == ["b"]
        world.say(a="yes", b="yes")
        assert [kind for _, kind in world.messages()] == ["firing", "resolved", "firing"]

    @one_database
    def test_one_that_was_clearing_is_free_at_once(self, world: AlertWorld) -> None:
        world.say(a="yes")
        world.say()
        world.act(world.only(), "resolve")
        world.say(a="yes")
        assert [kind for _, kind in world.messages()] == ["firing", "resolved", "firing"]


@one_database
def test_each_action_is_kept_with_who_and_from_where(world: AlertWorld) -> None:
    world.say(a="yes")
    alert = world.only()
    world.act(alert, "comment", note="the loader was restarted", via="slack")
    for _ in range(2):
        assert world.act(alert, "assign", assignee="lee")["assignee"] == "lee"
    assert world.act(alert, "assign", assignee=None)["assignee"] is None
    answer = world.act(alert, "acknowledge")
    bodies = [(change["kind"], change["body"]) for change in answer["changes"][1:]]
    seen = {"by": "kim", "via": "testclient", "address": "testclient", "note": ""}
    assert bodies == [
        ("commented", seen | {"note": "the loader was restarted", "via": "slack"}),
        ("assigned", seen | {"assignee": "lee"}),
        ("assigned", seen | {"assignee": None}),
        ("acknowledged", seen),
    ]
    assert world.messages() == [("alert.firing", "firing")]
    world.act(alert, "comment", 422)
    world.act(alert, "assign", 422)
    world.act(alert, "resolve")
    world.act(alert, "comment", note="for the record")
    for action in ("mute", "acknowledge"):
        world.act(alert, action, 409, **({"minutes": 5} if action == "mute" else {}))
    for action in ("mute", "unmute", "resolve", "assign", "comment"):
        more = {"minutes": 1} if action == "mute" else {"assignee": "x"} if action == "assign" else {"note": "x"}
        world.act({"id": "00000000-0000-0000-0000-000000000000"}, action, 404, **more)


class TestRepeats:
    def test_what_still_fires_is_said_again_until_somebody_is_at_it(self, world: AlertWorld) -> None:
        with writing(world.world.engine) as session:
            session.execute(update(Channel).values(repeat_seconds=100.0))
        world.say(a="yes")
        assert world.pass_time(200.0) == 0, "the first message has not gone out yet"
        sent(world)
        assert [world.pass_time(99.0), world.pass_time(2.0), world.pass_time(200.0)] == [0, 1, 0]
        sent(world)
        assert world.pass_time(101.0) == 1
        sent(world)
        world.act(world.only(), "acknowledge")
        assert world.pass_time(1000.0) == 0
        assert world.messages() == [("alert.firing", "firing")] + [("alert.updated", "repeated")] * 2

    @one_database
    def test_not_while_it_is_muted_or_clearing(self, world: AlertWorld) -> None:
        with writing(world.world.engine) as session:
            session.execute(update(Channel).values(repeat_seconds=100.0))
        world.say(a="yes")
        sent(world)
        world.act(world.only(), "mute", minutes=60)
        mute_until(world, world.now + 1e6)
        assert world.pass_time(1000.0) == 0
        mute_until(world, world.now)
        assert world.pass_time(1.0) == 1  # the end of the mute
        sent(world)
        world.say()
        assert world.pass_time(1000.0) == 0


def sent(world: AlertWorld) -> None:
    """What waits is delivered now."""
    with writing(world.world.engine) as session:
        waiting = update(Delivery).where(Delivery.state == "pending")
        session.execute(waiting.values(state="delivered", delivered_at=world.now))


@one_database
def test_the_forms_of_an_alerts_page(world: AlertWorld) -> None:
    world.say(a="yes")
    alert = world.only()
    page = f"http://test/alerts/{alert['id']}"
    own = {"sec-fetch-site": "same-origin"}

    def send(action: str, status: int = 303, **form: str) -> None:
        answer = world.client.post(f"{page}/{action}", data={"by": "kim"} | form, headers=own, follow_redirects=False)
        assert answer.status_code == status, answer.text

    send("comment", note="a look at the loader")
    send("assign", assignee="lee")
    send("mute", hours="4")
    shown = world.client.get(page).text
    assert "a look at the loader" in shown
    assert "assigned to" in shown
    assert "muted until" in shown
    send("unmute")
    send("acknowledge")
    send("resolve", note="known")
    for action, form in (("mute", {"hours": "5"}), ("comment", {}), ("mute", {"hours": "1"}), ("shout", {})):
        send(action, {"comment": 422, "shout": 404}.get(action, 422 if form.get("hours") == "5" else 409), **form)
    assert world.client.post(f"{page}/resolve", data={"by": "x"}).status_code == 403
    kinds = [change["kind"] for change in world.only()["changes"]]
    assert kinds == ["firing", "commented", "assigned", "muted", "unmuted", "acknowledged", "resolved"]
