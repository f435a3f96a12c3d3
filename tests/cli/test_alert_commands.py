"""`pacenote alert` on a database: what it shows, what it does, and what it says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from delivery_world import DeliveryWorld
from serving import one_line, run

from service.database.engine import open_engine
from service.database.migrate import ensure_schema


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("alerts") / "alerts.db"
    return f"sqlite:///{path}"


@pytest.fixture(scope="module")
def alert(url: str) -> str:
    engine = open_engine(url)
    ensure_schema(engine)
    alert = str(DeliveryWorld(engine).alert())
    engine.dispose()
    return alert


def said(url: str, *arguments: str, code: int = 0) -> str:
    done = run("alert", *arguments, PACENOTE_DATABASE_URL=url)
    assert done.returncode == code, done.stdout + done.stderr
    if code:
        assert one_line(done.stderr)
    return done.stdout if code == 0 else done.stderr


def test_an_alert_from_the_first_look_to_its_end(url: str, alert: str) -> None:
    assert alert in said(url, "list", "--state", "open", "--rule", "repeated_rows", "--severity", "critical")
    assert alert not in said(url, "list", "--rule", "train_drift")
    assert "acknowledged" in said(url, "ack", alert[:8], "--by", "kim", "--note", "looking")
    assert "muted" in said(url, "mute", alert[:8], "--hours", "2")
    assert "assigned to lee" in said(url, "assign", alert[:8], "lee")
    said(url, "comment", alert[:8], "restarted", "--by", "kim")
    said(url, "resolve", alert, "--by", "kim", "--note", "known")
    shown = said(url, "show", alert[:8])
    for words in ("acknowledged by kim: looking", "commented by kim: restarted", "resolved by kim: known"):
        assert words in shown
    assert "is resolved" in said(url, "mute", alert, "--hours", "1", code=2)


def test_what_there_is_not(url: str, alert: str) -> None:
    assert "no alert zzzz" in said(url, "show", "zzzz", code=2)
    assert "there is" in said(url, "ack", "00000000", code=2).lower()
    assert said(url, "mute", alert, "--hours", "0", code=2)
