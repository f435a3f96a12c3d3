"""Every page of a real service on SQLite."""

from __future__ import annotations


import pytest
from fastapi.testclient import TestClient

from tests.web.world import World


def test_empty_states_say_what_to_do(client: TestClient) -> None:
    page = client.get("/").text
    assert "No run yet" in page
    assert "trainer_hooks.start" in page
    assert "No alert" in client.get("/alerts").text
    assert "pacenote reference pull" in client.get("/references").text


def test_run_page(world: World) -> None:
    segment = world.start("v7x")
    world.train(segment, 1, 400)
    world.judge()
    answer = world.client.get(f"/runs/{world.run_id('v7x')}")
    assert answer.status_code == 200
    open("/tmp/page.html","w").write(answer.text)
    for name in ("loss","gap","segments","heldout","accuracy","tasks"):
        a = world.client.get(f"/pages/runs/{world.run_id('v7x')}/figures/{name}")
        assert a.status_code == 200, a.text
        print(name, len(a.content), [ (p["title"],p["caption"]) for p in a.json()["panels"]], a.json()["note"])
    al = world.client.get("/api/v1/alerts").json()["items"]
    print(al)
    print(world.client.get(f"/api/v1/runs/{world.run_id('v7x')}/verdict").json())
