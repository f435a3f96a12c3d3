"""Messages leave the outbox at least once, in order, whatever receivers and processes do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from delivery_world import SECRET, DeliveryWorld
from http_receiver import WAIT, Answer, Receiver
from sqlalchemy import Engine
from standardwebhooks import Webhook

from service.broker import Broker
from service.channels.outbox import BREAK_AFTER, FIRST_REST, SCHEDULE
from service.channels.sending import Sender
from service.channels.vault import Vault
from service.database.engine import open_engine
from service.database.models import Delivery
from service.worker.deliver import Deliverer

one_database = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # which one does not matter


@pytest.fixture
def world(engine: Engine) -> DeliveryWorld:
    return DeliveryWorld(engine)


def vault() -> Vault:
    return Vault(Fernet.generate_key().decode())


class Pump:
    """A deliverer and the thread that drives it, as the worker's loop does."""

    def __init__(self, engine: Engine, **options: Any) -> None:
        self._free, self._ended = threading.Event(), threading.Event()
        timeout = options.pop("timeout", 20.0)
        sender = Sender(allow_private=True, timeout=timeout)
        self.deliverer = Deliverer(engine, Broker(), sender, vault, on_free=self._free.set, **options)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._free.clear()
            if not self.deliverer.deliver_due():
                self._free.wait(0.05)

    def stop(self) -> None:
        self._ended.set()
        self._free.set()
        self._thread.join()
        self.deliverer.stop()


@pytest.fixture
def pump(engine: Engine) -> Iterator[Callable[..., Pump]]:
    pumps: list[Pump] = []

    def start(**options: Any) -> Pump:
        pumps.append(Pump(engine, **options))
        return pumps[-1]

    yield start
    for each in pumps:
        each.stop()


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the database will show."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        threading.Event().wait(0.01)


def states(world: DeliveryWorld) -> list[str]:
    return [delivery.state for delivery in world.deliveries()]


def test_a_message_arrives_signed_and_is_recorded(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    world.channel(receiver.url + "/")
    alert = world.alert()
    pump()
    [request] = receiver.take()
    body = Webhook(SECRET).verify(request.body, request.headers)
    assert (body["type"], body["data"]["alert"]["id"]) == ("alert.firing", str(alert))
    until(lambda: states(world) == ["delivered"])
    [delivery], [attempt] = world.deliveries(), world.attempts()
    assert request.id == str(delivery.uuid)
    assert (delivery.attempts, attempt.number, attempt.status, attempt.error) == (1, 1, 200, None)


@one_database
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Answer(500), "answered 500"),
        (Answer(301, (("location", "/elsewhere"),)), "answered 301"),
        (Answer(404), "answered 404"),
        (Answer(manner="close"), "RemoteProtocolError"),
        (Answer(manner="never"), "No answer within"),
    ],
    ids=["500", "301", "404", "close", "never"],
)
def test_anything_but_success_is_tried_again_with_the_same_id(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump], bad: Answer, error: str
) -> None:
    receiver.will("/", bad, Answer())
    world.channel(receiver.url + "/")
    world.alert()
    pump(schedule=(0.01,), timeout=0.5)
    first, second = receiver.take(2)
    assert first.id == second.id
    until(lambda: states(world) == ["delivered"])
    failed, delivered = world.attempts()
    assert error in (failed.error or "")
    assert (delivered.number, delivered.error) == (2, None)
    assert receiver.nothing_left()


@one_database
def test_after_the_last_attempt_it_has_failed_and_the_next_message_goes_out(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    receiver.will("/", Answer(500), Answer(500), Answer(500), Answer())
    world.channel(receiver.url + "/")
    world.alert(("firing", "resolved"))
    pump(schedule=(0.01, 0.01))
    kinds = [request.json["type"] for request in receiver.take(4)]
    assert kinds == ["alert.firing"] * 3 + ["alert.resolved"]
    until(lambda: states(world) == ["failed", "delivered"])


@one_database
def test_waits_follow_the_standard_schedule(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    receiver.will("/", Answer(500))
    world.channel(receiver.url + "/")
    world.alert()
    pump()
    for number, wait in enumerate(SCHEDULE, 1):
        receiver.take()
        until(lambda number=number: len(world.attempts()) == number)
        delivery, last = world.deliveries()[0], world.attempts()[-1]
        waits = delivery.next_attempt_at - (last.at + last.seconds)
        assert wait <= waits <= 1.1 * wait + 1e-3
        world.change(delivery.id, next_attempt_at=0.0)
        world.change_channel(delivery.channel_id, paused_until=None)
    receiver.take()
    until(lambda: states(world) == ["failed"])


@one_database
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_honoured(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump], form: str
) -> None:
    value = "120" if form == "seconds" else formatdate(time.time() + 120.0, usegmt=True)
    receiver.will("/", Answer(429, (("retry-after", value),)))
    world.channel(receiver.url + "/")
    world.alert()
    pump(schedule=(0.01, 0.01))
    receiver.take()
    until(lambda: len(world.attempts()) == 1)
    until(lambda: world.deliveries()[0].claimed_until is None)
    wait = world.deliveries()[0].next_attempt_at - world.attempts()[0].at
    assert 118.0 <= wait <= 125.0


def test_gone_disables_the_channel_and_gives_up_what_waits(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    receiver.will("/gone", Answer(410))
    gone, fine = world.channel(receiver.url + "/gone"), world.channel(receiver.url + "/fine")
    world.alert(("firing", "joined"))
    pump()
    paths = Counter(request.path for request in receiver.take(3))
    assert paths == {"/gone": 1, "/fine": 2}
    until(lambda: Counter(states(world)) == {"failed": 2, "delivered": 2})
    assert not world.get_channel(gone).enabled
    assert world.get_channel(fine).enabled
    world.alert()
    receiver.take()
    written = [delivery for delivery in world.deliveries()[4:] if delivery.state != "failed"]
    assert {delivery.channel_id for delivery in written} == {fine}


def test_messages_of_one_alert_keep_their_order(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    receiver.will("/", *[Answer(500), Answer(200)] * 10)
    world.channel(receiver.url + "/")
    alerts = [str(world.alert(("firing", "joined", "joined", "resolved"))) for _ in range(3)]
    pump(schedule=(0.01,) * 9)
    until(lambda: states(world) == ["delivered"] * 12)
    seen: dict[str, list[int]] = {alert: [] for alert in alerts}
    while not receiver.nothing_left():
        data = receiver.take()[0].json["data"]
        seen[data["alert"]["id"]].append(data["change"]["number"])
    assert all(numbers == sorted(numbers) and set(numbers) == {1, 2, 3, 4} for numbers in seen.values())


def test_a_channel_that_never_answers_holds_up_no_other(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    receiver.will("/never", Answer(manner="never"))
    world.channel(receiver.url + "/never")
    world.channel(receiver.url + "/fine")
    for _ in range(3):
        world.alert()
    pump()
    paths = Counter(request.path for request in receiver.take(4))
    assert paths == {"/never": 1, "/fine": 3}


@one_database
def test_slack_gets_blocks(world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]) -> None:
    world.channel(receiver.url + "/services/x", kind="slack")
    world.alert()
    pump()
    [request] = receiver.take()
    assert set(request.json) == {"text", "blocks"}


@one_database
def test_a_kind_this_version_does_not_know_stops_nothing_else(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    world.channel(receiver.url + "/a", kind="pigeon")
    world.channel(receiver.url + "/b")
    world.alert()
    pump()
    assert receiver.take()[0].path == "/b"
    until(lambda: len(world.attempts()) == 2)
    assert "KeyError" in (world.attempts()[0].error or "")


def test_stopping_breaks_off_what_hangs_and_it_is_sent_later(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    receiver.will("/", Answer(manner="never"), Answer())
    world.channel(receiver.url + "/")
    world.alert()
    first = pump(schedule=(0.01,))
    one = receiver.take()[0]
    first.stop()
    assert [delivery.state for delivery in world.deliveries()] == ["pending"]
    pump(schedule=(0.01,))
    assert receiver.take()[0].id == one.id
    until(lambda: states(world) == ["delivered"])


def test_two_processes_on_one_database_send_each_message_once(
    database_url: str, world: DeliveryWorld, receiver: Receiver
) -> None:
    for name in "abc":
        world.channel(f"{receiver.url}/{name}")
    for _ in range(20):
        world.alert(("firing", "joined"))
    engines = [open_engine(database_url) for _ in range(2)]
    pumps = [Pump(engine) for engine in engines]
    try:
        received = receiver.take(120)
        until(lambda: set(states(world)) == {"delivered"})
    finally:
        for pump in pumps:
            pump.stop()
        for engine in engines:
            engine.dispose()
    assert receiver.nothing_left()
    assert len({request.id for request in received}) == 120
    assert [attempt.number for attempt in world.attempts()] == [1] * 120


def test_a_process_killed_between_claim_and_send_loses_no_message(
    database_url: str, world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    world.channel(receiver.url + "/")
    world.alert()
    script = Path(__file__).parent / "stubborn_deliverer.py"
    command = [sys.executable, str(script), database_url, "1.0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        claimed = child.stdout.readline().strip()
        child.kill()
    assert receiver.nothing_left()
    assert world.deliveries()[0].claimed_until is not None
    pump()
    assert receiver.take()[0].id == claimed
    until(lambda: states(world) == ["delivered"])


def test_a_claim_that_lapsed_does_not_undo_what_another_process_did(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump], engine: Engine
) -> None:
    """The slow one fails after the quick one has delivered: it stays delivered."""
    receiver.will("/", Answer(manner="never"), Answer())
    world.channel(receiver.url + "/")
    world.alert()
    slow = Deliverer(engine, Broker(), Sender(allow_private=True, timeout=1.0), vault, lease=0.1)
    assert slow.deliver_due() == 1
    receiver.take()
    pump()
    receiver.take()
    until(lambda: states(world) == ["delivered"])
    until(lambda: len(world.attempts()) == 2)
    slow.stop()
    delivery: Delivery = world.deliveries()[0]
    assert (delivery.state, delivery.attempts) == ("delivered", 2)


@one_database
def test_a_failing_channel_rests_and_is_then_tried_with_one_message(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    receiver.will("/", *[Answer(500)] * BREAK_AFTER, Answer())
    channel = world.channel(receiver.url + "/")
    for _ in range(BREAK_AFTER + 1):
        world.alert()
    pump()
    receiver.take(BREAK_AFTER)
    until(lambda: world.get_channel(channel).paused_until is not None)
    held = world.get_channel(channel)
    assert held.failures == BREAK_AFTER
    assert FIRST_REST - 1.0 < (held.paused_until or 0.0) - time.time() <= FIRST_REST
    assert states(world) == ["pending"] * (BREAK_AFTER + 1)
    world.change_channel(channel, paused_until=time.time() - 1.0)
    until(lambda: states(world).count("delivered") == 1)
    until(lambda: world.get_channel(channel).failures == 0)
    assert world.get_channel(channel).paused_until is None


@one_database
def test_a_refused_message_does_not_rest_the_channel(
    world: DeliveryWorld, receiver: Receiver, pump: Callable[..., Pump]
) -> None:
    receiver.will("/", Answer(400))
    channel = world.channel(receiver.url + "/")
    for _ in range(BREAK_AFTER + 2):
        world.alert()
    pump()
    receiver.take(BREAK_AFTER + 2)
    until(lambda: len(world.attempts()) == BREAK_AFTER + 2)
    assert world.get_channel(channel).paused_until is None
