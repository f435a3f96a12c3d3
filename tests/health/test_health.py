"""Liveness, readiness, metrics; and what holds for every route: the token, and the shape of errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from judged_world import JudgedWorld, Scripted
from pydantic import SecretStr
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from service.app import create_app
from service.database.engine import open_engine
from service.database.migrate import ensure_schema, head_revision
from service.settings import Settings

TOKEN = "a-token-of-twenty-three"
METHODS = ("get", "put", "post", "delete", "patch")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'health.db'}"
    engine = open_engine(url)
    ensure_schema(engine)
    engine.dispose()
    return url


@pytest.fixture
def guarded(sqlite_url: str) -> Iterator[TestClient]:
    """The service with a token."""
    settings = Settings(database_url=sqlite_url, worker=False, token=SecretStr(TOKEN))
    with TestClient(create_app(settings)) as client:
        yield client


def routes(client: TestClient) -> list[tuple[str, str]]:
    """(method, path with made-up parameters) of every documented route."""
    found: list[tuple[str, str]] = []
    paths: dict[str, dict[str, Any]] = client.app.openapi()["paths"]  # type: ignore[attr-defined]
    for path, methods in paths.items():
        for method in METHODS:
            if method in methods:
                filled = path
                for parameter in methods[method].get("parameters", []):
                    if parameter["in"] == "path":
                        value = str(uuid4()) if "slug" not in parameter["name"] else "nothing"
                        filled = filled.replace("{" + parameter["name"] + "}", value)
                found.append((method, filled))
    return found


def is_problem(answer: Any) -> bool:
    body = answer.json()
    return (
        answer.headers["content-type"] == "application/problem+json"
        and set(body) >= {"type", "title", "status", "detail", "instance", "errors"}
        and body["status"] == answer.status_code
        and bool(body["detail"])
    )


def test_ready(database_url: str, engine: Engine) -> None:
    with TestClient(create_app(Settings(database_url=database_url, worker=False))) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        ready = {"status": "ready", "revision": head_revision(engine), "judgement_lag_seconds": 0.0}
        assert client.get("/readyz").json() == ready


def test_not_ready_where_judging_lags(database_url: str, engine: Engine) -> None:
    """Data come in while no worker runs; then a worker judges them, and the service is ready again."""
    world = JudgedWorld(engine)
    run = world.run()
    world.points(run, [1, 2])
    with engine.begin() as connection:
        connection.execute(text("UPDATE run_state SET last_data_at = last_data_at - 400"))
        connection.execute(text("UPDATE journal SET received_at = received_at - 400"))
    with TestClient(create_app(Settings(database_url=database_url, worker=False))) as client:
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert is_problem(answer)
        assert "Judging lags: the oldest data has waited 40" in answer.json()["detail"]
        assert "pacenote worker" in answer.json()["detail"]
        [line] = [
            line for line in client.get("/metrics").text.splitlines() if line.startswith("pacenote_judgement_lag")
        ]
        assert float(line.split()[1]) > 399.0
        world.judge(Scripted(lambda _view: {})).judge_run(run)
        assert client.get("/readyz").json()["judgement_lag_seconds"] == 0.0
    patient = Settings(database_url=database_url, worker=False, max_judgement_lag_seconds=0.0)
    world.points(run, [3])
    with engine.begin() as connection:
        connection.execute(text("UPDATE run_state SET last_data_at = last_data_at - 400"))
    with TestClient(create_app(patient)) as client:
        assert client.get("/readyz").status_code == 200


def test_not_ready_on_another_revision(database_url: str, engine: Engine) -> None:
    with TestClient(create_app(Settings(database_url=database_url, worker=False))) as client:
        with engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert is_problem(answer)
        assert "revision 9999" in answer.json()["detail"]
        assert client.get("/healthz").status_code == 200, "liveness does not look at the database"


def test_not_ready_without_a_database(sqlite_url: str, tmp_path: Path) -> None:
    with TestClient(create_app(Settings(database_url=sqlite_url, worker=False))) as client:
        client.app.state.context.engine.dispose()
        database = tmp_path / "health.db"
        for file in tmp_path.glob("health.db*"):
            file.unlink()
        database.mkdir()
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert is_problem(answer)
        assert "does not answer" in answer.json()["detail"]
        assert client.get("/healthz").status_code == 200
        database.rmdir()


def test_metrics_count_requests_by_route(guarded: TestClient) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/metrics").status_code == 401
    for _ in range(3):
        guarded.get(f"/api/v1/runs/{uuid4()}", headers=headers)
    guarded.get("/nothing/here")
    answer = guarded.get("/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert 'pacenote_http_requests_total{method="GET",route="/api/v1/runs/{run_id}",status="404"} 3.0' in lines
    assert 'pacenote_http_requests_total{method="GET",route="unmatched",status="404"} 1.0' in lines
    assert "pacenote_journal_points 0.0" in lines
    assert any(line.startswith("pacenote_build_info{version=") for line in lines)


def test_metrics_count_accepted_points_once(sqlite_url: str) -> None:
    now = 1_700_000_000.0
    sent: dict[str, Any] = {"process": 0, "seq": 0, "sent_at": now}
    start = sent | {"project": "p", "run": "r", "role": "reproduction", "stage": "stage1", "kind": "trainer"}
    start |= {"start_step": 0, "tokens_per_step": 8, "topology": {}, "config": {}, "versions": {}, "started_at": now}
    batch = sent | {"steps": [1, 2], "times": [now, now], "metrics": {"a": [1.0, None], "b": [2.0, "NaN"]}}
    with TestClient(create_app(Settings(database_url=sqlite_url, worker=False))) as client:
        address = f"/api/v1/segments/{uuid4()}"
        assert client.put(address, json=start).status_code == 202
        for _ in range(2):
            assert client.post(f"{address}/batches", json=batch).status_code == 202
        assert client.post(f"{address}/batches", json=sent).status_code == 422
        lines = client.get("/metrics").text.splitlines()
    assert "pacenote_ingested_points_total 3.0" in lines
    assert 'pacenote_runs{role="reproduction"} 1.0' in lines


def test_every_route_wants_the_token(guarded: TestClient) -> None:
    found = [(method, path) for method, path in routes(guarded) if path.startswith("/api/v1/")]
    assert len(found) > 20
    for method, path in found:
        for headers in ({}, {"Authorization": "Bearer another-token-of-length"}, {"Authorization": f"Basic {TOKEN}"}):
            answer = guarded.request(method, path, headers=headers)
            assert answer.status_code == 401, (method, path, answer.status_code)
            assert is_problem(answer), (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/readyz").status_code == 200


def test_every_error_is_a_problem(guarded: TestClient) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    failed = 0
    for method, path in routes(guarded):
        if path.endswith("/events") and method == "get" and "/runs/" not in path:
            continue  # a stream without end
        answers = [guarded.request(method, path, headers=headers, content=b"{")]
        answers.append(guarded.request("DELETE" if method != "delete" else "PATCH", path, headers=headers))
        for answer in answers:
            if answer.is_error:
                assert is_problem(answer), (method, path, answer.text)
                failed += 1
    assert failed > 20
    assert is_problem(guarded.get("/api/v1/nothing", headers=headers))


def test_operation_ids_are_stable_names(guarded: TestClient) -> None:
    paths: dict[str, dict[str, Any]] = guarded.app.openapi()["paths"]  # type: ignore[attr-defined]
    ids = [paths[path][method]["operationId"] for path in paths for method in METHODS if method in paths[path]]
    assert len(set(ids)) == len(ids)
    assert {"list_runs", "read_run", "list_references", "read_reference"} <= set(ids)


def test_what_is_not_there_says_where_to_look(sqlite_url: str) -> None:
    client = TestClient(create_app(Settings(database_url=sqlite_url, worker=False)))
    answer = client.get("/api/v1/nothing")
    assert answer.status_code == 404
    assert "/api/docs" in answer.json()["detail"]
    answer = client.delete("/api/v1/runs")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET"
    assert answer.json()["detail"] == "DELETE is not possible here, but GET is."


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("a bug"), 500),
        (OperationalError("SELECT 1", {}, Exception("server closed the connection")), 503),
        (PoolTimeout("QueuePool limit"), 503),
    ],
    ids=["a bug", "no database", "no free connection"],
)
def test_what_goes_wrong_inside_is_a_problem_body_too(sqlite_url: str, error: Exception, status: int) -> None:
    app = create_app(Settings(database_url=sqlite_url, worker=False))

    @app.get("/broken")
    def broken() -> None:
        raise error

    answer = TestClient(app, raise_server_exceptions=False).get("/broken")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["instance"], body["errors"]) == (status, "/broken", [])
    assert str(error) not in answer.text, "what is inside stays in the log"
    assert ("retry-after" in answer.headers) == (status == 503)


def test_bodies_that_are_no_json_or_too_long(sqlite_url: str) -> None:
    client = TestClient(create_app(Settings(database_url=sqlite_url, worker=False)))
    json = {"Content-Type": "application/json"}
    answer = client.post("/api/v1/channels", content='{"name": "a', headers=json)
    assert answer.status_code == 422
    detail = "is no JSON: Unterminated string starting at (byte 9)"
    assert answer.json()["errors"] == [{"field": "body", "detail": detail}]
    answer = client.post("/api/v1/channels", content='{"name": "' + "x" * 100_000 + '"}', headers=json)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
