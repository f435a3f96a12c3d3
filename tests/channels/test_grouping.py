"""One message for what belongs together, with one id at every attempt, and each change once."""

from __future__ import annotations

import time
from typing import Any

import pytest
from delivery_world import DeliveryWorld
from sqlalchemy import Engine

from service.channels import outbox
from service.channels.alertmanager import Alertmanager
from service.channels.kinds import KINDS
from service.channels.outbox import Attempt, Claim
from service.channels.sending import Reply
from service.channels.webhook import StandardWebhook
from service.database.engine import writing

LATER = 1000.0  # seconds after which every wait is over


@pytest.fixture
def world(engine: Engine) -> DeliveryWorld:
    made = DeliveryWorld(engine)
    made.channel("https://example.com/grouped", name="grouped")
    return made


def grouped(world: DeliveryWorld, by: str = "run", wait: float = 30.0) -> None:
    world.change_channel(1, group_by=by, group_wait=wait)


def claim(world: DeliveryWorld, after: float = LATER) -> list[Claim]:
    with writing(world.engine) as session:
        return outbox.claim(session, time.time() + after, 60.0, (), 9)


def answer(world: DeliveryWorld, claimed: Claim, status: int) -> None:
    with writing(world.engine) as session:
        attempt = Attempt(time.time() + LATER, 0.1, Reply(status, {}, b""))
        outbox.record(session, claimed, attempt, (0.0, 0.0), lambda: 0.0)


def states(world: DeliveryWorld) -> list[str]:
    return [delivery.state for delivery in world.deliveries()]


def test_the_first_waits_and_the_others_go_with_it(world: DeliveryWorld) -> None:
    grouped(world)
    alerts = [str(world.alert()) for _ in range(3)]
    assert claim(world, 0.0) == []
    [one] = claim(world)
    assert one.message_id == str(world.deliveries()[0].uuid)
    assert one.message["title"] == "3 alerts of run r: 3 firing"
    assert one.message["type"] == "alert.firing"
    listed = one.message["group"]["messages"]
    assert [entry["alert"]["id"] for entry in listed] == alerts
    assert [entry["id"] for entry in listed] == [str(delivery.uuid) for delivery in world.deliveries()]
    assert one.message["alert"]["url"] == "http://pacenote/alerts"
    answer(world, one, 200)
    assert states(world) == ["delivered"] * 3
    assert claim(world) == []


def test_an_attempt_again_says_the_same_although_more_has_come(world: DeliveryWorld) -> None:
    grouped(world)
    for _ in range(2):
        world.alert()
    [first] = claim(world)
    world.alert()
    answer(world, first, 500)
    [third] = claim(world, LATER - 100.0)  # it is due before the first is tried again
    assert "group" not in third.message
    answer(world, third, 200)
    [again] = claim(world, 2 * LATER)
    assert (again.message_id, again.message) == (first.message_id, first.message)
    answer(world, again, 200)
    assert states(world) == ["delivered"] * 3


def test_a_killed_process_leaves_the_group_as_it_was(world: DeliveryWorld) -> None:
    grouped(world)
    for _ in range(2):
        world.alert()
    [first] = claim(world)
    world.alert()
    [again] = claim(world, 2 * LATER)  # the claim has lapsed
    assert (again.message_id, again.message) == (first.message_id, first.message)


def test_changes_of_one_alert_become_its_newest_state(world: DeliveryWorld) -> None:
    grouped(world)
    world.alert(("firing", "joined"))
    [one] = claim(world)
    assert (one.message["type"], one.message["change"]["kind"]) == ("alert.firing", "joined")
    assert len(one.message["group"]["messages"]) == 2


def test_a_later_change_does_not_overtake_one_that_is_on_its_way(world: DeliveryWorld) -> None:
    grouped(world)
    world.alert(("firing", "resolved"))
    with writing(world.engine) as session:  # the first went out alone and failed once
        first = session.get_one(type(world.deliveries()[0]), 1)
        first.attempts, first.next_attempt_at = 1, time.time() + 10 * LATER
    world.alert()
    [one] = claim(world)
    assert "group" not in one.message, "the second message waits for the first of its alert"
    assert one.message_id == str(world.deliveries()[2].uuid)
    assert world.deliveries()[1].sent_with is None


def test_off_by_default(world: DeliveryWorld) -> None:
    for _ in range(2):
        world.alert()
    assert len(claim(world, 0.0)) == 1
    assert all("group" not in found.message for found in claim(world, 0.0))


def test_given_up_together_and_replayed_alone(world: DeliveryWorld) -> None:
    grouped(world)
    for _ in range(2):
        world.alert()
    [one] = claim(world)
    answer(world, one, 410)
    assert states(world) == ["failed", "failed"]
    world.change_channel(1, enabled=True, group_by="none")
    with writing(world.engine) as session:
        outbox.replay(session.get_one(type(world.deliveries()[0]), 2), time.time())
    [alone] = claim(world)
    assert alone.message_id == str(world.deliveries()[1].uuid)


def test_every_kind_can_write_it(world: DeliveryWorld) -> None:
    grouped(world, by="project")
    for _ in range(14):
        world.alert(("firing", "resolved"))
    [one] = claim(world)
    assert one.message["title"] == "14 alerts of project p: 14 firing"  # the world's alerts stay firing
    assert one.message["summary"][-1] == "… and 4 more"
    for name, kind in KINDS.items():
        payload: Any = kind.payload(one.message) if name != "apprise" else {}
        assert "members" not in payload
    assert len(Alertmanager().payload(one.message)["alerts"]) == 14
    assert "members" not in StandardWebhook().payload(one.message)["data"]
