"""Declaring a known difference over HTTP, ending it, and what is kept of that."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi.testclient import TestClient
from judged_world import TRAIN, JudgedWorld

from service.database.engine import reading, writing
from service.database.models import Run, RunState

NEW = {"text": "newer crawl", "item": "data", "budgets": {TRAIN: -0.02}, "end_step": 400, "by": "Ann"}


def a_run(world: JudgedWorld, last_step: int = 100) -> UUID:
    run = world.run()
    world.points(run, [1, last_step])
    with writing(world.engine) as session:
        session.get_one(RunState, run).last_step = last_step
    with reading(world.engine) as session:
        return session.get_one(Run, run).uuid


def test_it_is_declared_listed_and_ended_and_each_of_that_is_recorded(client: TestClient, world: JudgedWorld) -> None:
    run = a_run(world)
    made = client.post(f"/runs/{run}/deviations", json=NEW)
    assert made.status_code == 201
    one = made.json()
    assert (one["state"], one["budgets"], one["from_step"], one["end_step"]) == ("in force", {TRAIN: -0.02}, 0, 400)
    assert client.get(f"/runs/{run}/deviations").json()["items"] == [one]
    path = f"/runs/{run}/deviations/{one['id']}/end"
    ended = client.post(path, json={"end_step": 50, "by": "Bo", "reason": "swapped back"}).json()
    assert (ended["end_step"], ended["state"]) == (50, "ended")
    again = client.post(path, json={"by": "Bo"})
    assert again.status_code == 409
    assert "ends at step 50 already" in again.json()["detail"]
    items = client.get(f"/runs/{run}/deviations/history").json()["items"]
    assert [(i["by"], i["reason"]) for i in items] == [("Bo", "swapped back"), ("Ann", "newer crawl")]
    assert (items[0]["old"]["end_step"], items[0]["new"]["end_step"], items[1]["old"]) == (400, 50, None)


def test_by_default_it_ends_at_the_newest_step(client: TestClient, world: JudgedWorld) -> None:
    run = a_run(world, 77)
    one = client.post(f"/runs/{run}/deviations", json=NEW).json()
    ended = client.post(f"/runs/{run}/deviations/{one['id']}/end", json={"by": "Bo"}).json()
    assert (ended["end_step"], ended["state"]) == (77, "in force")
    later = client.post(f"/runs/{run}/deviations", json=NEW | {"from_step": 200}).json()
    assert later["state"] == "not begun"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"budgets": {}}, "budgets"),
        ({"budgets": {TRAIN: 0.0}}, "expected a signed number other than 0"),
        ({"budgets": {"optim/learning_rate": 0.1}}, "has no budget; these may: train/ce_loss"),
        ({"budgets": {"downstream/arc_easy/accuracy": -1.5}}, "between -1 and 1"),
        ({"item": "weather"}, "item"),
        ({"end_step": None}, "give an end"),
        ({"from_step": 500}, "lies before from_step (500)"),
        ({"end_step": -1}, "end_step"),
        ({"from_tokens": 10.0, "end_tokens": 5.0}, "lies before from_tokens"),
        ({"end_at": "2030-01-01T00:00:00"}, "timezone"),
        ({"text": ""}, "text"),
        ({"text": "\x00"}, "NUL"),
        ({"by": ""}, "by"),
        ({"colour": "red"}, "colour"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_cannot_be_declared(client: TestClient, world: JudgedWorld, change: dict[str, Any], says: str) -> None:
    run = a_run(world)
    answer = client.post(f"/runs/{run}/deviations", json=NEW | change)
    assert answer.status_code == 422
    assert says in answer.json()["detail"]
    assert client.get(f"/runs/{run}/deviations/history").json()["items"] == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_unknown_ones_are_named(client: TestClient, world: JudgedWorld) -> None:
    run, nobody = a_run(world), uuid4()
    assert client.get(f"/runs/{nobody}/deviations").status_code == 404
    assert client.post(f"/runs/{nobody}/deviations", json=NEW).status_code == 404
    answer = client.post(f"/runs/{run}/deviations/{nobody}/end", json={"by": "Bo"})
    assert (answer.status_code, answer.json()["detail"]) == (404, f"Run r has no deviation {nobody}.")
