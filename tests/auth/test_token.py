"""Who is let in, and which settings a service does not start with."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr, ValidationError

from service.app import create_app
from service.auth.token import COOKIE, refuses_to_start
from service.database.engine import open_engine
from service.database.migrate import ensure_schema
from service.settings import Settings

TOKEN = "a-token-of-twenty-three"


@pytest.fixture
def locked(sqlite: str) -> TestClient:
    return TestClient(create_app(Settings(database_url=sqlite, worker=False, token=SecretStr(TOKEN))))


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer   {TOKEN} ", 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("", 401),
        ("Bearer caf\u00e9-caf\u00e9-caf\u00e9-caf\u00e9", 401),
    ],
)
def test_the_bearer_token(locked: TestClient, header: str, status: int) -> None:
    answer = locked.get("/api/v1/runs", headers={"Authorization": header.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"


def test_the_cookie_counts_where_no_header_is(locked: TestClient) -> None:
    locked.cookies.set(COOKIE, TOKEN)
    assert locked.get("/api/v1/runs").status_code == 200
    assert locked.get("/api/v1/runs", headers={"Authorization": "Bearer wrong"}).status_code == 401
    locked.cookies.set(COOKIE, TOKEN + "x")
    assert locked.get("/api/v1/runs").status_code == 401


@pytest.mark.parametrize(
    ("host", "token", "refused"),
    [
        ("127.0.0.1", None, None),
        ("127.8.9.1", None, None),
        ("::1", None, None),
        ("localhost", None, None),
        ("0.0.0.0", None, "without a token"),
        ("", None, "without a token"),
        ("::", None, "without a token"),
        ("10.0.0.7", None, "without a token"),
        ("host.example", None, "without a token"),
        ("0.0.0.0", TOKEN, None),
        ("127.0.0.1", "", "too short"),
        ("127.0.0.1", "short", "too short"),
        ("127.0.0.1", TOKEN + "\n", "no header can carry"),
        ("127.0.0.1", "a token of twenty", "no header can carry"),
        ("127.0.0.1", "caf\u00e9-caf\u00e9-caf\u00e9-caf\u00e9", "no header can carry"),
    ],
)
def test_settings_to_start_with(host: str, token: str | None, refused: str | None) -> None:
    reason = refuses_to_start(Settings(host=host, token=None if token is None else SecretStr(token)))
    assert reason is None if refused is None else refused in (reason or "")


def test_the_address_in_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "workstation")
    assert Settings(host="0.0.0.0", port=80).base_url == "http://workstation:80"
    assert Settings(host="::1", port=80).base_url == "http://[::1]:80"
    assert Settings(host="0.0.0.0", public_url="https://p.example.org/x/").base_url == "https://p.example.org/x"
    assert Settings(public_url="").base_url == "http://127.0.0.1:8350"
    for wrong in ("p.example.org", "ftp://p.example.org", "https://"):
        with pytest.raises(ValidationError, match="must be an address such as"):
            Settings(public_url=wrong)


def test_a_data_folder_with_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "we?ird #h%41 ünï"
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    engine = open_engine(Settings().database_url)
    ensure_schema(engine)
    engine.dispose()
    assert (folder / "pacenote" / "pacenote.db").stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
