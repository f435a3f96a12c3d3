"""`pacenote channel` on a database: what was sent, and what is sent again."""

from __future__ import annotations

from pathlib import Path

import pytest
from delivery_world import DeliveryWorld
from serving import one_line, run

from service.database.engine import open_engine
from service.database.migrate import ensure_schema


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two messages to `team`, both given up."""
    path: Path = tmp_path_factory.mktemp("channels") / "channels.db"
    url = f"sqlite:///{path}"
    engine = open_engine(url)
    ensure_schema(engine)
    world = DeliveryWorld(engine)
    world.channel("https://example.com/in", name="team")
    world.alert(("firing", "joined"))
    for delivery in world.deliveries():
        world.failed(delivery.id)
    engine.dispose()
    return url


def said(url: str, *arguments: str, code: int = 0) -> str:
    done = run("channel", *arguments, PACENOTE_DATABASE_URL=url, COLUMNS="200")
    assert done.returncode == code, done.stdout + done.stderr
    assert code == 0 or one_line(done.stderr)
    return done.stdout if code == 0 else done.stderr


def test_what_was_given_up_is_shown_and_sent_again(url: str) -> None:
    shown = said(url, "deliveries", "team", "--state", "failed")
    assert shown.count("alert.") == 2
    assert "no" in shown
    assert "2 given up" in said(url, "list")
    engine = open_engine(url)
    first = str(DeliveryWorld(engine).deliveries()[0].uuid)
    engine.dispose()
    assert said(url, "replay", "team", first) == "1 message to team will be sent again.\n"
    assert "1 waiting, 1 given up" in said(url, "list")
    assert "0 messages" in said(url, "replay", "team", "--since", "2999-01-01")
    assert said(url, "replay", "team") == "1 message to team will be sent again.\n"
    assert first in said(url, "deliveries", "team", "--state", "pending")


def test_what_there_is_not(url: str) -> None:
    assert "no channel nope" in said(url, "replay", "nope", code=2)
    assert "no delivery" in said(url, "replay", "team", "00000000-0000-0000-0000-000000000000", code=2)
    said(url, "add", "other", "webhook", "https://example.com/other")
    engine = open_engine(url)
    first = str(DeliveryWorld(engine).deliveries()[0].uuid)
    engine.dispose()
    assert f"The message {first} is to team, not to other." in said(url, "replay", "other", first, code=2)
    said(url, "switch", "team", "--off")
    assert "is off" in said(url, "replay", "team", code=2)
