"""Filtering, sorting, archiving and notes, on both databases."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi.testclient import TestClient
from runs_world import Api
from sqlalchemy import Engine

from service.context import Context
from service.database.engine import writing
from service.database.models import Alert, VerdictRow
from service.runs.repository import RunRepository

HOSTILE = "100%_<script>'\"\\\U0001f4a5"


def context_of(client: TestClient) -> Context:
    return client.app.state.context


def engine_of(client: TestClient) -> Engine:
    return context_of(client).engine


def names(answer: Any) -> list[str]:
    return [item["name"] for item in answer["items"]]


def give(client: TestClient, run: UUID, verdict: str | None = None, alerts: int = 0) -> None:
    """Say a verdict and raise alerts, as the worker would."""
    with writing(engine_of(client)) as session:
        row = RunRepository(session).by_uuid(run)
        assert row is not None
        if verdict:
            session.add(VerdictRow(run_id=row.id, state=verdict, body={}, decided_at=1.0))
        for _ in range(alerts):
            alert = Alert(uuid=uuid4(), run_id=row.id, family="stability", state="firing", severity="info", title="t")
            alert.rules, alert.judgements, alert.opened_at, alert.opened_step, alert.updated_at = [], {}, 1.0, 1, 1.0
            session.add(alert)


@pytest.fixture
def three(api: Api, client: TestClient) -> dict[str, UUID]:
    """alpha (5 steps, drifting, one alert), beta (20 steps, consistent), gamma (nothing yet)."""
    runs: dict[str, UUID] = {}
    for name, steps in (("beta", 20), ("alpha", 5), ("gamma", 0)):
        runs[name], segment = api.start(name, project="q" if name == "gamma" else "p")
        if steps:
            api.log(segment, list(range(1, steps + 1)), "train/ce_loss", [3.0] * steps)
    give(client, runs["alpha"], "drifting", alerts=1)
    give(client, runs["beta"], "consistent")
    return runs


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["gamma", "alpha", "beta"]),
        ({"sort": "name"}, ["alpha", "beta", "gamma"]),
        ({"sort": "tokens"}, ["beta", "alpha", "gamma"]),
        ({"sort": "activity"}, ["alpha", "beta", "gamma"]),
        ({"sort": "alerts"}, ["alpha", "gamma", "beta"]),
        ({"verdict": "drifting"}, ["alpha"]),
        ({"verdict": "not judged"}, ["gamma"]),
        ({"alerts": True}, ["alpha"]),
        ({"alerts": False, "sort": "name"}, ["beta", "gamma"]),
        ({"search": "ALPH"}, ["alpha"]),
        ({"search": "a%"}, []),
        ({"search": "q", "project": "q"}, ["gamma"]),
        ({"archived": True}, []),
    ],
)
def test_lists_as_asked(api: Api, three: dict[str, UUID], query: dict[str, Any], expected: list[str]) -> None:
    assert names(api.get("/runs", **query)) == expected


@pytest.mark.parametrize("sort", ["newest", "activity", "tokens", "alerts", "name"])
def test_every_order_is_paged_without_loss_or_doubles(api: Api, client: TestClient, sort: str) -> None:
    made = [api.start(f"run {number % 3} {number}")[0] for number in range(7)]
    give(client, made[2], alerts=2)
    give(client, made[5], alerts=2)
    whole = [item["id"] for item in api.get("/runs", sort=sort)["items"]]
    assert sorted(whole) == sorted(map(str, made))
    cursor: str | None = None
    found: list[str] = []
    while True:
        page = api.get("/runs", sort=sort, cursor=cursor, limit=2)
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == whole


def test_a_cursor_of_another_order_is_refused(api: Api, three: dict[str, UUID]) -> None:
    cursor = api.get("/runs", sort="name", limit=1)["next_cursor"]
    assert "sort=tokens" in api.get("/runs", 422, sort="tokens", cursor=cursor)["detail"]
    assert "query.sort" in api.get("/runs", 422, sort="loss")["detail"]


def test_names_are_searched_as_text(api: Api) -> None:
    api.start(HOSTILE)
    api.start("100 percent")
    for part in ("100%", "%_<", "'\"\\", "\U0001f4a5"):
        assert names(api.get("/runs", search=part)) == [HOSTILE]


def test_archiving_takes_a_run_out_of_the_way(api: Api, three: dict[str, UUID]) -> None:
    def archive(whether: bool) -> Any:
        answer = api.client.patch(f"/api/v1/runs/{three['beta']}", json={"archived": whether})
        assert answer.status_code == 200
        return answer.json()["archived_at"]

    at = archive(True)
    assert at == archive(True)
    assert names(api.get("/runs", archived=False)) == ["gamma", "alpha"]
    assert names(api.get("/runs", archived=True)) == ["beta"]
    assert len(names(api.get("/runs"))) == 3
    assert archive(False) is None
    assert len(names(api.get("/runs", archived=False))) == 3
    assert api.client.patch(f"/api/v1/runs/{uuid4()}", json={"archived": True}).status_code == 404
    assert api.client.patch(f"/api/v1/runs/{three['beta']}", json={"name": "other"}).status_code == 422


def test_notes_are_written_read_and_taken_away(api: Api, three: dict[str, UUID]) -> None:
    path = f"/api/v1/runs/{three['alpha']}/notes"
    first = api.client.post(path, json={"text": HOSTILE, "step": 3, "by": "Ada"})
    assert first.status_code == 201
    second = api.client.post(path, json={"text": "as a whole", "by": "Bo"})
    found = api.get(f"/runs/{three['alpha']}/notes")["items"]
    assert [(note["text"], note["step"], note["by"]) for note in found] == [
        ("as a whole", None, "Bo"),
        (HOSTILE, 3, "Ada"),
    ]
    assert api.get(f"/runs/{three['beta']}/notes")["items"] == []
    other = f"/api/v1/runs/{three['beta']}/notes/{first.json()['id']}"
    assert api.client.delete(other).status_code == 404
    assert api.client.delete(f"{path}/{second.json()['id']}").status_code == 204
    assert api.client.delete(f"{path}/{second.json()['id']}").status_code == 404
    assert [note["by"] for note in api.get(f"/runs/{three['alpha']}/notes")["items"]] == ["Ada"]
    for wrong in (
        {"text": "", "by": "Ada"},
        {"text": "x"},
        {"text": "x", "by": "Ada", "step": -1},
        {"text": "a\0b", "by": "A"},
    ):
        assert api.client.post(path, json=wrong).status_code == 422
    assert api.client.post(f"/api/v1/runs/{uuid4()}/notes", json={"text": "x", "by": "A"}).status_code == 404
