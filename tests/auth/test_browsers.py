"""What other sites' pages cannot do through a browser on this machine, and what must go on working."""

from __future__ import annotations

from itertools import product

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from service.app import create_app
from service.settings import Settings

TOKEN = "a-token-of-twenty-three"
CHANNEL = {"name": "theirs", "kind": "webhook", "url": "https://example.com/hook"}


def client(url: str, **more: object) -> TestClient:
    settings = Settings(database_url=url, worker=False, **more)  # type: ignore[arg-type]
    return TestClient(create_app(settings), base_url="http://127.0.0.1:8350")


def is_problem(answer: httpx.Response, status: int) -> bool:
    return (
        answer.status_code == status
        and answer.headers["content-type"] == "application/problem+json"
        and answer.json()["status"] == status
        and bool(answer.json()["detail"])
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8350"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "http://localhost:8350"},
        {"Origin": "null"},
        {"Origin": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize("token", [None, SecretStr(TOKEN)], ids=["open", "token"])
def test_another_sites_page_writes_nothing(sqlite: str, headers: dict[str, str], token: SecretStr | None) -> None:
    service = client(sqlite, token=token)
    service.cookies.set("pacenote_token", TOKEN)
    assert is_problem(service.post("/api/v1/channels", json=CHANNEL, headers=headers), 403)
    # As a form does it: a simple request, which no preflight comes before.
    plain = {**headers, "Content-Type": "text/plain"}
    body = '{"name": "theirs", "kind": "webhook", "url": "https://example.com/hook"}'
    assert is_problem(service.post("/api/v1/channels", content=body, headers=plain), 403)
    nowhere = "00000000-0000-0000-0000-000000000000"
    assert is_problem(service.put(f"/api/v1/segments/{nowhere}", json={}, headers=headers), 403)
    assert is_problem(service.delete(f"/api/v1/channels/{nowhere}", headers=headers), 403)
    assert service.get("/api/v1/channels").json()["items"] == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8350"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://127.0.0.1:8350"},
        {"Origin": "https://pacenote.example.org"},
    ],
    ids=str,
)
def test_our_own_pages_and_programs_write(sqlite: str, headers: dict[str, str]) -> None:
    service = client(sqlite, public_url="https://pacenote.example.org/")
    assert service.post("/api/v1/channels", json=CHANNEL, headers=headers).status_code == 201


def test_links_from_other_sites_are_followed(sqlite: str) -> None:
    service = client(sqlite)
    assert service.get("/alerts", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


STRANGE = ["evil.example", "evil.example:8350", "127.0.0.1.evil.example", "localhost.evil.example", "EVIL.example."]
OWN = [
    "127.0.0.1:8350",
    "localhost:8350",
    "LOCALHOST",
    "localhost.:8350",
    "app.localhost:8350",
    "[::1]:8350",
    "10.0.0.7",
    "workstation:8350",
    "pacenote.example.org",
    "",
]


def test_a_rebound_name_reads_nothing(sqlite: str) -> None:
    service = client(sqlite, public_url="https://pacenote.example.org")
    for host, path in product(STRANGE, ["/api/v1/runs", "/", "/metrics", "/api/openapi.json", "/healthz"]):
        answer = service.get(path, headers={"Host": host})
        assert is_problem(answer, 421), (host, path)
        assert "PACENOTE_PUBLIC_URL" in answer.json()["detail"]


def test_our_own_names(sqlite: str) -> None:
    service = client(sqlite, public_url="https://pacenote.example.org")
    for host in OWN:
        assert service.get("/api/v1/runs", headers={"Host": host}).status_code == 200, host


def test_with_a_token_any_name_will_do(sqlite: str) -> None:
    service = client(sqlite, token=SecretStr(TOKEN))
    named = {"Host": "pacenote.internal.example"}
    assert service.get("/api/v1/runs", headers=named).status_code == 401
    answer = service.get("/api/v1/runs", headers={**named, "Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
