"""What is wrong is a page for a browser and a problem body for a program; the API's own page."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from tests.web.conftest import make_settings
from tests.web.reading import text_of

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PROBLEM = "application/problem+json"


@pytest.mark.parametrize(
    ("path", "status"),
    [("/nothing/here", 404), ("/settings/runs/nonsense", 422), ("/compare?run=nonsense", 422), ("/runs/nonsense", 404)],
)
def test_a_browser_gets_a_page(client: TestClient, path: str, status: int) -> None:
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "All runs" in text_of(answer.text)


@pytest.mark.parametrize("path", ["/nothing/here", "/settings/runs/nonsense"])
def test_a_program_gets_a_problem_body(client: TestClient, path: str) -> None:
    assert client.get(path).headers["content-type"] == PROBLEM


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/v1/runs/nonsense", "/pages/runs/nonsense/gap.svg"])
def test_the_api_answers_with_problem_bodies_whoever_asks(client: TestClient, path: str) -> None:
    assert client.get(path, headers=BROWSER).headers["content-type"] == PROBLEM


def test_what_is_wrong_is_text(client: TestClient) -> None:
    answer = client.get("/<script>alert(1)</script>", headers=BROWSER)
    assert "<script>alert" not in answer.text
    assert "<script>alert(1)</script>" in unescape(answer.text)


def test_a_database_that_is_gone_is_a_page_that_says_to_try_again(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    with TestClient(create_app(settings)) as client:
        for file in tmp_path.glob("pacenote.db*"):
            file.unlink()
        client.app.state.context.engine.dispose()
        for path in ("/", "/alerts", "/settings"):
            answer = client.get(path, headers=BROWSER)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert "Try again" in text_of(answer.text)
        assert client.get("/").headers["content-type"] == PROBLEM


def test_the_api_page_lists_every_operation_and_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/api/docs")
    text = text_of(page.text)
    for path, methods in client.get("/api/openapi.json").json()["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path} " in text
    assert "tokens_per_step body" in text  # of bodies that the service reads itself, too
    assert 'href="/api/openapi.json"' in page.text
    assert "://" not in "".join(part for part in page.text.split('"') if part.startswith("http"))
    assert "script-src 'self'" in page.headers["content-security-policy"]
