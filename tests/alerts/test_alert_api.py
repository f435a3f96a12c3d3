"""Alerts over HTTP: listed, read with all that belongs to them, acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from judged_world import JudgedWorld, Scripted
from sqlalchemy import Engine

from service.app import create_app
from service.settings import Settings


@pytest.fixture
def world(engine: Engine) -> JudgedWorld:
    return JudgedWorld(engine)


@pytest.fixture
def client(database_url: str) -> Iterator[TestClient]:
    settings = Settings(database_url=database_url, worker=False, public_url="https://pacenote.example.com/")
    with TestClient(create_app(settings), base_url="http://test/api/v1") as client:
        yield client


def judge(world: JudgedWorld, run: int, step: int, **said: str) -> None:
    world.points(run, [step])
    world.judge(Scripted(lambda _view: said)).judge_run(run)


def only(client: TestClient, **query: Any) -> dict[str, Any]:
    [item] = client.get("/alerts", params=query).json()["items"]
    return item


def test_an_alert_is_read_with_judgements_changes_and_deliveries(client: TestClient, world: JudgedWorld) -> None:
    world.channel()
    run = world.run("v7x")
    judge(world, run, 1, a="yes")
    judge(world, run, 2, a="yes", b="yes")
    listed = only(client)
    alert = client.get(f"/alerts/{listed['id']}").json()
    assert {name: alert[name] for name in listed} == listed
    assert (alert["run_name"], alert["project"], alert["state"], alert["rules"]) == ("v7x", "lab", "firing", ["a", "b"])
    assert alert["url"] == f"https://pacenote.example.com/alerts/{alert['id']}"
    assert {rule: body["at_step"] for rule, body in alert["judgements"].items()} == {"a": 2, "b": 2}  # the newest
    assert [(change["number"], change["kind"]) for change in alert["changes"]] == [(1, "firing"), (2, "joined")]
    assert [(d["change"], d["type"], d["state"]) for d in alert["deliveries"]] == [
        (1, "alert.firing", "pending"),
        (2, "alert.updated", "pending"),
    ]


def test_filters_and_pages(client: TestClient, world: JudgedWorld) -> None:
    runs = [world.run(name) for name in "xyz"]
    for run in runs:
        judge(world, run, 1, a="yes", c="yes")
    first = client.get("/alerts", params={"limit": 4}).json()
    rest = client.get("/alerts", params={"limit": 4, "cursor": first["next_cursor"]}).json()
    assert (len(first["items"]), len(rest["items"]), rest["next_cursor"]) == (4, 2, None)
    assert len({item["id"] for item in first["items"] + rest["items"]}) == 6
    assert len(client.get("/alerts", params={"family": "stability"}).json()["items"]) == 3
    assert len(client.get("/alerts", params={"run": first["items"][0]["run"]}).json()["items"]) == 2
    assert len(client.get("/alerts", params={"project": "lab", "state": "open"}).json()["items"]) == 6
    assert client.get("/alerts", params={"project": "other"}).json() == {"items": [], "next_cursor": None}
    assert client.get("/alerts", params={"state": "resolved"}).json()["items"] == []
    for query in ({"state": "loud"}, {"cursor": "!"}, {"limit": 0}, {"run": "x"}):
        assert client.get("/alerts", params=query).status_code == 422


def test_acknowledging_is_kept_once_and_stays_when_a_rule_joins(client: TestClient, world: JudgedWorld) -> None:
    world.channel()
    run = world.run()
    judge(world, run, 1, a="yes")
    address = f"/alerts/{only(client)['id']}/acknowledge"
    for _ in range(2):
        answer = client.post(address, json={"by": "yiming", "note": "looking at the loader"})
        assert (answer.status_code, answer.json()["state"]) == (200, "acknowledged")
    assert [change["kind"] for change in answer.json()["changes"]] == ["firing", "acknowledged"]
    assert answer.json()["changes"][1]["body"] == {
        "by": "yiming",
        "note": "looking at the loader",
        "via": "testclient",
        "address": "testclient",
    }
    judge(world, run, 2, a="yes", b="yes")
    alert = client.get(f"/alerts/{only(client, state='acknowledged')['id']}").json()
    assert (alert["state"], alert["rules"]) == ("acknowledged", ["a", "b"])
    assert [delivery["type"] for delivery in alert["deliveries"]] == ["alert.firing", "alert.updated"]


def test_what_cannot_be_acknowledged(client: TestClient, world: JudgedWorld) -> None:
    nobody = "/alerts/00000000-0000-0000-0000-000000000000"
    assert client.get(nobody).status_code == 404
    assert client.post(f"{nobody}/acknowledge", json={"by": "me"}).status_code == 404
    run, clock = world.run(), [0.0]
    for step, said in enumerate(({"a": "yes"}, {}, {}), 1):
        world.points(run, [step])
        clock[0] += 100.0
        world.judge(Scripted(lambda _view, said=said: said), clock=lambda: clock[0]).judge_run(run)
    address = f"/alerts/{only(client, state='resolved')['id']}/acknowledge"
    assert client.post(address, json={"by": "me"}).status_code == 409
    for body in ({}, {"by": ""}, {"by": "me", "mood": "bad"}):
        assert client.post(address, json=body).status_code == 422
