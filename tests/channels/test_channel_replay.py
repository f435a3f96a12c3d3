"""What was given up is sent again when somebody says so: every message once, with its id, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from delivery_world import DeliveryWorld
from fastapi.testclient import TestClient
from http_receiver import WAIT, Answer, Receiver
from sqlalchemy import Engine

from service.app import create_app
from service.broker import Broker
from service.channels.sending import Sender
from service.channels.vault import vault_of
from service.settings import Settings
from service.worker.deliver import Deliverer


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, allow_private_channels=True, worker=False)


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), base_url="http://test/api/v1") as client:
        yield client


def send_all(engine: Engine, settings: Settings) -> None:
    """Send what is due until nothing is, as the worker does."""
    free = threading.Event()
    deliverer = Deliverer(
        engine, Broker(), Sender(allow_private=True), lambda: vault_of(settings), on_free=free.set, schedule=()
    )
    while deliverer.deliver_due():
        assert free.wait(WAIT)
        free.clear()
    deliverer.stop()


def states(client: TestClient, channel: str, **wanted: str) -> list[tuple[int, str]]:
    items: list[dict[str, Any]] = client.get(f"/channels/{channel}/deliveries", params=wanted).json()["items"]
    return [(item["change"], item["state"]) for item in reversed(items)]


def test_what_a_410_held_back_is_sent_once_after_the_channel_is_on_again(
    client: TestClient, engine: Engine, settings: Settings, receiver: Receiver
) -> None:
    made = client.post("/channels", json={"name": "team", "kind": "webhook", "url": receiver.url + "/in"}).json()
    channel = made["id"]
    receiver.will("/in", Answer(410), Answer())
    world = DeliveryWorld(engine)
    world.alert(("firing", "joined", "resolved"))
    send_all(engine, settings)
    assert len(receiver.take()) == 1
    assert states(client, channel) == [(1, "failed"), (2, "failed"), (3, "failed")]
    shown = client.get(f"/channels/{channel}").json()
    assert (shown["enabled"], shown["failed"], shown["waiting"]) == (False, 3, 0)
    refused = client.post(f"/channels/{channel}/replay", json={})
    assert refused.status_code == 409
    assert "is off" in refused.json()["detail"]
    assert client.patch(f"/channels/{channel}", json={"enabled": True}).json()["enabled"]
    send_all(engine, settings)
    assert receiver.nothing_left(), "nothing is sent again by itself"
    assert client.post(f"/channels/{channel}/replay", json={}).json() == {"replayed": 3}
    assert client.post(f"/channels/{channel}/replay", json={}).json() == {"replayed": 0}
    send_all(engine, settings)
    got = receiver.take(3)
    assert [request.json["data"]["change"]["number"] for request in got] == [1, 2, 3]
    assert [request.id for request in got] == [str(delivery.uuid) for delivery in world.deliveries()]
    assert receiver.nothing_left()
    assert states(client, channel, state="delivered") == [(1, "delivered"), (2, "delivered"), (3, "delivered")]
    assert states(client, channel, state="failed") == []


def test_what_is_too_old_can_be_left_out(
    client: TestClient, engine: Engine, settings: Settings, receiver: Receiver
) -> None:
    made = client.post("/channels", json={"name": "team", "kind": "webhook", "url": receiver.url + "/in"}).json()
    world = DeliveryWorld(engine)
    for _ in range(2):
        world.alert()
    for delivery in world.deliveries():
        world.failed(delivery.id)
    world.change(world.deliveries()[0].id, created_at=1.0)
    since = datetime.fromtimestamp(time.time() - 3600.0, UTC).isoformat()
    assert client.post(f"/channels/{made['id']}/replay", json={"since": since}).json() == {"replayed": 1}
    assert [delivery.state for delivery in world.deliveries()] == ["failed", "pending"]


def test_a_channel_that_somebody_switched_off_keeps_what_waits(
    client: TestClient, engine: Engine, settings: Settings, receiver: Receiver
) -> None:
    made = client.post("/channels", json={"name": "team", "kind": "webhook", "url": receiver.url + "/in"}).json()
    world = DeliveryWorld(engine)
    world.alert()
    client.patch(f"/channels/{made['id']}", json={"enabled": False})
    world.alert(("firing", "resolved"))
    send_all(engine, settings)
    assert receiver.nothing_left()
    shown = client.get(f"/channels/{made['id']}").json()
    assert (shown["waiting"], shown["failed"]) == (1, 2), "what came while it was off can be replayed"
    client.patch(f"/channels/{made['id']}", json={"enabled": True})
    send_all(engine, settings)
    first, *others = [str(delivery.uuid) for delivery in world.deliveries()]
    assert [request.id for request in receiver.take()] == [first]
    assert receiver.nothing_left()
    assert client.post(f"/channels/{made['id']}/replay", json={}).json() == {"replayed": 2}
    send_all(engine, settings)
    assert [request.id for request in receiver.take(2)] == others
