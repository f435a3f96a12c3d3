"""Channels over HTTP: made, shown without their secrets, tested, removed; their deliveries and replays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from delivery_world import DeliveryWorld
from fastapi.testclient import TestClient
from http_receiver import Answer, Receiver
from sqlalchemy import select
from standardwebhooks import Webhook

from service.app import create_app
from service.database.engine import open_engine, writing
from service.database.models import Channel, Project, Run
from service.settings import Settings


@pytest.fixture
def client(database_url: str) -> Iterator[TestClient]:
    settings = Settings(database_url=database_url, allow_private_channels=True, worker=False)
    with TestClient(create_app(settings), base_url="http://test/api/v1") as client:
        yield client


def make(client: TestClient, url: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/channels", json={"name": "team", "kind": "webhook", "url": url, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_the_secret_is_shown_once_and_never_again(client: TestClient, receiver: Receiver) -> None:
    made = make(client, receiver.url + "/in?key=hush")
    assert made["secret"].startswith("whsec_")
    shown = [
        client.get(f"/channels/{made['id']}"),
        client.get("/channels"),
        client.get(f"/channels/{made['id']}/deliveries"),
    ]
    for answer in shown:
        assert answer.status_code == 200
        assert made["secret"] not in answer.text
        assert "hush" not in answer.text
    assert client.get("/channels").json()["items"][0]["name"] == "team"


def test_a_test_message_is_signed_with_that_secret(client: TestClient, receiver: Receiver) -> None:
    made = make(client, receiver.url + "/in")
    answer = client.post(f"/channels/{made['id']}/test").json()
    assert (answer["delivered"], answer["status"], answer["error"]) == (True, 200, None)
    [request] = receiver.take()
    assert Webhook(made["secret"]).verify(request.body, request.headers)["type"] == "channel.test"


def test_a_failed_test_says_why_and_a_good_one_enables_again(
    client: TestClient, receiver: Receiver, database_url: str
) -> None:
    made = make(client, receiver.url + "/in", name="slack", kind="slack")
    engine = open_engine(database_url)
    with writing(engine) as session:
        session.scalars(select(Channel)).one().enabled = False
    engine.dispose()
    receiver.will("/in", Answer(410), Answer())
    failed = client.post(f"/channels/{made['id']}/test").json()
    assert (failed["delivered"], failed["status"], failed["error"]) == (False, 410, "answered 410")
    assert not client.get(f"/channels/{made['id']}").json()["enabled"]
    assert client.post(f"/channels/{made['id']}/test").json()["delivered"]
    assert client.get(f"/channels/{made['id']}").json()["enabled"]


def test_apprise_sends_and_follows_no_redirect(client: TestClient, receiver: Receiver) -> None:
    address = receiver.url.replace("http://", "json://")
    made = make(client, f"{address}/in", kind="apprise")
    assert client.post(f"/channels/{made['id']}/test").json()["delivered"]
    [request] = receiver.take()
    assert "Pacenote test message to team" in request.json["title"]
    receiver.will("/in", Answer(301, (("location", f"{receiver.url}/elsewhere"),)))
    failed = client.post(f"/channels/{made['id']}/test").json()
    assert not failed["delivered"]
    assert "Apprise could not send it" in failed["error"]
    assert [request.path for request in receiver.take()] == ["/in"]
    assert receiver.nothing_left()


def test_what_is_wrong_is_named(client: TestClient) -> None:
    good = {"name": "a", "kind": "slack", "url": "http://127.0.0.1/"}
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("body.url", {"url": "ftp://x"}),
        ("body.secret", {"kind": "webhook", "secret": "short"}),
        ("body.secret", {"secret": "whsec_x"}),
        ("body.kind", {"kind": "pigeon"}),
        ("body.project", {"project": "none"}),
        ("body.colour", {"colour": "red"}),
        ("body.name", {"name": ""}),
    ]
    for field, change in wrong:
        answer = client.post("/channels", json=good | change)
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert client.get("/channels").json() == {"items": []}


def test_address_and_secret_are_unreadable_in_the_database(
    client: TestClient, receiver: Receiver, database_url: str
) -> None:
    made = make(client, receiver.url + "/in?key=hush")
    engine = open_engine(database_url)
    with writing(engine) as session:
        channel = session.scalars(select(Channel)).one()
        kept = f"{channel.url} {channel.secret}"
    engine.dispose()
    assert "hush" not in kept
    assert made["secret"] not in kept


def test_a_new_secret_overlaps_with_the_old_one(client: TestClient, receiver: Receiver) -> None:
    made = make(client, receiver.url + "/in")
    changed = client.post(f"/channels/{made['id']}/secret", json={"overlap_hours": 1.0}).json()
    assert changed["secret"] != made["secret"]
    assert changed["secret_overlap_until"] is not None
    assert client.post(f"/channels/{made['id']}/test").json()["delivered"]
    [request] = receiver.take()
    for secret in (made["secret"], changed["secret"]):
        assert Webhook(secret).verify(request.body, request.headers)
    client.post(f"/channels/{made['id']}/secret", json={"overlap_hours": 0.0})
    client.post(f"/channels/{made['id']}/test")
    [request] = receiver.take()
    assert request.headers["webhook-signature"].count("v1,") == 1
    slack = make(client, receiver.url + "/s", name="s", kind="slack")
    assert client.post(f"/channels/{slack['id']}/secret", json={}).status_code == 409


def test_a_channel_can_be_changed(client: TestClient, receiver: Receiver, database_url: str) -> None:
    made = make(client, receiver.url + "/in")
    world = DeliveryWorld(engine := open_engine(database_url))
    change = {
        "name": "b",
        "rules": ["train_drift"],
        "min_severity": "critical",
        "run": str(world.run.uuid),
        "project": "p",
    }
    answer = client.patch(f"/channels/{made['id']}", json=change).json()
    assert {key: answer[key] for key in change} == change
    assert client.patch(f"/channels/{made['id']}", json={"rules": None, "run": None}).json()["rules"] is None
    assert client.patch(f"/channels/{made['id']}", json={"enabled": False}).json()["enabled"] is False
    assert client.get(f"/channels/{made['id']}").json()["min_severity"] == "critical"
    for wrong in ({"rules": ["none"]}, {"rules": []}, {"min_severity": "bad"}, {"url": "x"}, {"project": "none"}):
        assert client.patch(f"/channels/{made['id']}", json=wrong).status_code == 422
    engine.dispose()


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({}, True),
        ({"rules": ["repeated_rows"]}, True),
        ({"rules": ["train_drift"]}, False),
        ({"min_severity": "critical"}, True),
        ({"project": "p"}, True),
        ({"project": "other"}, False),
        ({"run": True}, True),
        ({"run": False}, False),
    ],
)
def test_a_channel_gets_what_it_asked_for(
    client: TestClient, receiver: Receiver, database_url: str, limits: dict[str, Any], wanted: bool
) -> None:
    world = DeliveryWorld(engine := open_engine(database_url))
    with writing(engine) as session:
        other = Project(slug="other", created_at=0.0)
        session.add(other)
        session.flush()
        stranger = Run(uuid=uuid4(), project_id=other.id, name="x", stage="s", role="reproduction", reference="lab",
                       token_offset=0.0, created_at=0.0)  # fmt: skip
        session.add(stranger)
        session.flush()
        ids = {True: str(world.run.uuid), False: str(stranger.uuid)}
    make(client, receiver.url, **{key: ids[value] if key == "run" else value for key, value in limits.items()})
    world.alert()
    assert len(world.deliveries()) == int(wanted)
    engine.dispose()


def test_two_channels_cannot_have_one_name(client: TestClient, receiver: Receiver) -> None:
    make(client, receiver.url)
    answer = client.post("/channels", json={"name": "team", "kind": "slack", "url": receiver.url})
    assert (answer.status_code, len(client.get("/channels").json()["items"])) == (409, 1)


def test_private_addresses_are_refused_unless_they_are_allowed(database_url: str) -> None:
    with TestClient(
        create_app(Settings(database_url=database_url, worker=False)), base_url="http://test/api/v1"
    ) as client:
        for url in ("http://example.com/", "https://127.0.0.1/", "https://10.0.0.1/", "https://[::1]/"):
            answer = client.post("/channels", json={"name": "a", "kind": "slack", "url": url})
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body.url")


def test_removing_takes_its_deliveries_along(client: TestClient, receiver: Receiver, database_url: str) -> None:
    delivery = sent(database_url, receiver.url)
    channel = client.get("/channels").json()["items"][0]["id"]
    assert client.get(f"/channels/{channel}/deliveries").json()["items"][0]["id"] == delivery
    assert client.delete(f"/channels/{channel}").status_code == 204
    assert client.get(f"/channels/{channel}").status_code == 404
    assert client.post(f"/deliveries/{delivery}/replay").status_code == 404


def test_a_replay_waits_for_delivery_with_the_same_id(
    client: TestClient, receiver: Receiver, database_url: str
) -> None:
    delivery = sent(database_url, receiver.url)
    answer = client.post(f"/deliveries/{delivery}/replay")
    assert (answer.status_code, answer.json()["state"], answer.json()["id"]) == (202, "pending", delivery)
    channel = client.get("/channels").json()["items"][0]["id"]
    [item] = client.get(f"/channels/{channel}/deliveries").json()["items"]
    assert (item["state"], item["type"], [a["status"] for a in item["attempts"]]) == ("pending", "alert.firing", [500])


def test_pages_of_deliveries_follow_each_other(client: TestClient, receiver: Receiver, database_url: str) -> None:
    for _ in range(3):
        sent(database_url, receiver.url)
    channel = client.get("/channels").json()["items"][0]["id"]
    first = client.get(f"/channels/{channel}/deliveries", params={"limit": 2}).json()
    second = client.get(f"/channels/{channel}/deliveries", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert (len(first["items"]), len(second["items"]), second["next_cursor"]) == (2, 1, None)
    assert len({item["id"] for item in [*first["items"], *second["items"]]}) == 3


def test_an_unknown_channel_is_404(client: TestClient) -> None:
    nobody = "/channels/00000000-0000-0000-0000-000000000000"
    answers = [
        client.get(nobody),
        client.delete(nobody),
        client.get(f"{nobody}/deliveries"),
        client.post(f"{nobody}/test"),
    ]
    assert [answer.status_code for answer in answers] == [404] * 4


def sent(database_url: str, url: str) -> str:
    """A delivery that has failed once, to the only channel; its id."""
    engine = open_engine(database_url)
    world = DeliveryWorld(engine)
    if not world.deliveries():
        world.channel(url)
    world.alert()
    delivery = world.deliveries()[-1]
    world.failed(delivery.id)
    engine.dispose()
    return str(delivery.uuid)
