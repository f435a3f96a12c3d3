"""HEAD wherever there is GET: the same status and headers, no body, and no stream that never ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    from service.database.engine import open_engine
    from service.database.migrate import ensure_schema

    url = f"sqlite:///{tmp_path_factory.mktemp('head') / 'pacenote.db'}"
    engine = open_engine(url)
    ensure_schema(engine)
    engine.dispose()
    with TestClient(create_app(Settings(database_url=url, worker=False))) as client:
        yield client


@pytest.mark.parametrize("path", ["/api/v1/runs", "/api/v1/references", "/api/v1/alerts", "/healthz", "/nothing"])
def test_head_is_get_without_the_body(http: TestClient, path: str) -> None:
    got, head = http.get(path), http.head(path)
    assert head.status_code == got.status_code
    assert head.headers["content-type"] == got.headers["content-type"]
    assert head.headers.get("content-length") == got.headers.get("content-length")
    assert head.content == b""


def test_the_head_of_an_endless_stream_ends(http: TestClient) -> None:
    head = http.head("/api/v1/events")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")


def test_what_only_takes_posts_still_does(http: TestClient) -> None:
    answer = http.head("/api/v1/segments/x/batches")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
