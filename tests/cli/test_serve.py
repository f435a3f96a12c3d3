"""`pacenote serve` as it is started: what it says, and one clear line for everything that keeps it from starting."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import PACENOTE, Serving, environment, one_line, run
from typer.testing import CliRunner

from service.cli.main import app
from service.database.engine import open_engine
from service.database.migrate import ensure_schema


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'serve.db'}"


def test_it_says_where_it_is_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    try:
        assert serving.first_line.startswith("Pacenote is at http://127.0.0.1:")
        assert httpx.get(f"{serving.url}/readyz", timeout=30).status_code == 200
        slugs = {item["slug"] for item in httpx.get(f"{serving.url}/api/v1/references", timeout=30).json()["items"]}
        assert "olmo3-7b" in slugs, "the shipped references are installed"
        for number in (signal.SIGINT, signal.SIGTERM):  # an impatient hand changes nothing
            serving.process.send_signal(number)
        status, out, error = serving.end(signal.SIGINT)
        assert (status, error) == (0, "")
        assert "runs open" in out
    finally:
        serving.kill()


def test_with_a_token_it_does_not_run_open(tmp_path: Path) -> None:
    serving = Serving(tmp_path, PACENOTE_TOKEN="a-token-of-twenty-three")
    try:
        assert httpx.get(f"{serving.url}/api/v1/runs", timeout=30).status_code == 401
        headers = {"Authorization": "Bearer a-token-of-twenty-three"}
        assert httpx.get(f"{serving.url}/api/v1/runs", headers=headers, timeout=30).status_code == 200
        status, out, _ = serving.end(signal.SIGTERM)
        assert status == 0
        assert "open" not in out
    finally:
        serving.kill()


def test_a_port_in_use(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run("serve", "--port", str(port), PACENOTE_DATABASE_URL=url)
    assert result.returncode == 2
    assert one_line(result.stderr)
    assert f"port {port}: Address already in use" in result.stderr


def test_no_token_on_an_open_address(url: str) -> None:
    result = run("serve", "--host", "0.0.0.0", "--port", "0", PACENOTE_DATABASE_URL=url)
    assert result.returncode == 2
    assert one_line(result.stderr)
    assert "without a token" in result.stderr


def test_a_token_that_is_too_short(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_TOKEN", "tiny-secret")
    result = CliRunner().invoke(app, ["serve", "--port", "0", "--database-url", url])
    assert result.exit_code == 2
    assert one_line(result.output)
    assert "at least 16 characters" in result.output
    assert "tiny-secret" not in result.output


def test_another_revision(url: str, tmp_path: Path) -> None:
    engine = open_engine(url)
    ensure_schema(engine)
    engine.dispose()
    with sqlite3.connect(tmp_path / "serve.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    result = run("serve", "--port", "0", PACENOTE_DATABASE_URL=url)
    assert result.returncode == 3
    assert one_line(result.stderr)
    assert "revision 9999" in result.stderr
    assert CliRunner().invoke(app, ["database", "current", "--database-url", url]).exit_code == 3


def test_tables_that_are_not_ours(url: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "serve.db") as connection:
        connection.execute("CREATE TABLE accounts (id INTEGER)")
    result = CliRunner().invoke(app, ["serve", "--port", "0", "--database-url", url])
    assert result.exit_code == 3
    assert one_line(result.output)


@pytest.mark.parametrize(
    "case",
    [
        "folder", "below a file", "no database", "memory", "another kind", "no address", "with options", "no port",
        "a missing slash",
    ],
)  # fmt: skip
def test_a_database_that_cannot_be_used(tmp_path: Path, case: str) -> None:
    (tmp_path / "file").write_text("this is no database, but it is long enough to be looked at as one " * 100)
    (tmp_path / "folder").mkdir()
    address = {
        "folder": f"sqlite:///{tmp_path / 'folder'}",
        "below a file": f"sqlite:///{tmp_path / 'file' / 'x.db'}",
        "no database": f"sqlite:///{tmp_path / 'file'}",
        "memory": "sqlite:///:memory:",
        "another kind": "mysql://root@localhost/x",
        "no address": "not an address",
        "with options": f"sqlite:///{tmp_path / 'x.db'}?mode=ro",
        "no port": "postgresql://someone:very-secret@localhost:port/x",
        "a missing slash": "someone:very-secret@localhost/x",
    }[case]
    result = CliRunner().invoke(app, ["serve", "--port", "0", "--database-url", address])
    assert result.exit_code == 2, result.output
    assert one_line(result.output), result.output
    assert "very-secret" not in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_database_that_is_read_only(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(url)
    ensure_schema(engine)
    engine.dispose()
    connect = sqlite3.connect

    def read_only(path: Path, **more: Any) -> sqlite3.Connection:
        """As SQLite itself falls back to where it may not write; root, who runs tests, always may."""
        return connect(f"file:{path}?mode=ro", uri=True, **more)

    monkeypatch.setattr("service.database.engine.sqlite3.connect", read_only)
    result = CliRunner().invoke(app, ["serve", "--port", "0", "--database-url", url])
    assert result.exit_code == 2
    assert one_line(result.output)
    assert "readonly database" in result.output


def test_a_postgresql_that_is_not_there_keeps_its_password(tmp_path: Path) -> None:
    address = f"postgresql://someone:very-secret@/db?host={tmp_path}"
    result = CliRunner().invoke(app, ["serve", "--port", "0", "--database-url", address])
    assert result.exit_code == 2
    assert one_line(result.output)
    assert "very-secret" not in result.output


def test_settings_that_cannot_be(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(app, ["serve", "--port", "70000", "--database-url", url])
    assert result.exit_code == 2
    assert one_line(result.output)
    monkeypatch.setenv("PACENOTE_PORT", "eighty")
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert one_line(result.output)
    assert "PACENOTE_PORT" in result.output


def test_a_worker_alone_ends_on_ctrl_c(url: str) -> None:
    worker = subprocess.Popen(
        [*PACENOTE, "worker"], env=environment(PACENOTE_DATABASE_URL=url), stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert "worker" in worker.stdout.readline()
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
