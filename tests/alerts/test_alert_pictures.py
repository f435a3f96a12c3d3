"""The picture of an alert: what it shows, and who may fetch it."""

from __future__ import annotations

import io
import json
import time
from email.parser import BytesParser
from typing import Any

import numpy as np
import pytest
from alert_message import message
from alert_world import client_on
from cryptography.fernet import Fernet
from delivery_world import DeliveryWorld
from PIL import Image
from sqlalchemy import Engine

from service.alerts.pictures import Pictures, picture_of
from service.alerts.plot import BAND, LINE, Curve, draw
from service.channels.attempt import attempt_at
from service.channels.discord import Discord
from service.channels.kind import Outgoing
from service.channels.kinds import KINDS
from service.channels.outbox import Claim
from service.channels.sending import Reply, Sender
from service.channels.vault import Vault

PNG = b"\x89PNG\r\n\x1a\n"


def curve(gap: Any, **more: Any) -> Curve:
    values = np.asarray(gap, np.float64)
    return Curve("gap", np.arange(len(values), dtype=np.float64), values, values - 0.01, values + 0.01, **more)


def colours(picture: bytes) -> set[tuple[int, ...]]:
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    assert image.size == (600, 240)
    return {colour for _, colour in image.getcolors(1 << 20) or []}


def near(colour: str, found: set[tuple[int, ...]]) -> bool:
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return any(max(abs(a - b) for a, b in zip(wanted, each, strict=True)) < 12 for each in found)


def test_line_and_tolerance_are_drawn() -> None:
    found = colours(draw(curve(np.linspace(0, -0.05, 50), tolerance=0.015, since=(20.0, 25.0))))
    assert near(BAND, found)
    assert near(LINE, found)
    assert not near(BAND, colours(draw(curve(np.linspace(0, -0.05, 50)))))


@pytest.mark.parametrize(
    "gap",
    [[0.0], [np.nan, np.nan], [0.0, np.inf, 0.1], [1e300, -1e300], [0.0, 0.0], [np.nan, 1.0, np.nan]],
    ids=["one point", "nothing", "infinite", "huge", "flat", "alone"],
)
def test_odd_curves_are_drawn_too(gap: list[float]) -> None:
    assert draw(curve(gap, tolerance=0.015, since=(-5.0, 1e9))).startswith(PNG)


class Drawn:
    def png(self, _message: Any) -> bytes | None:
        return draw(curve([0.0, 0.1]))

    def address(self, _message: Any, _now: float) -> str | None:
        return "https://pacenote.example.com/pictures/x.png"


class Kept(Sender):
    def post(self, url: str, headers: Any, body: bytes) -> Reply:
        self.headers, self.body = headers, body
        return Reply(204, {}, b"")


def sent(kind: str, pictures: Any) -> Kept:
    vault, sender = Vault(Fernet.generate_key().decode()), Kept(allow_private=True)
    secret = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" if kind == "webhook" else None
    claim = Claim(1, "id", 1, kind, "https://example.com/", secret, message("firing"), 0.0)
    assert attempt_at(sender, vault, claim, pictures).delivered
    return sender


def test_discord_gets_it_inside_the_message() -> None:
    sender = sent("discord", Drawn())
    head = f"content-type: {sender.headers['content-type']}\r\n\r\n".encode()
    words, picture = BytesParser().parsebytes(head + sender.body).get_payload()
    assert picture.get_filename() == "gap.png"
    assert picture.get_payload(decode=True).startswith(PNG)
    [embed] = json.loads(words.get_payload())["embeds"]
    assert embed["image"] == {"url": "attachment://gap.png"}
    plain = Outgoing("https://example.com/", message("firing"), "id", 0.0)
    assert json.loads(Discord().write(plain).body) == Discord().payload(message("firing"))


@pytest.mark.parametrize("kind", ["slack", "google_chat", "teams", "mattermost", "webhook"])
def test_chats_that_fetch_get_an_address(kind: str) -> None:
    assert b"https://pacenote.example.com/pictures/x.png" in sent(kind, Drawn()).body
    assert b"pictures" not in sent(kind, None).body


def test_alertmanager_gets_none() -> None:
    assert KINDS["alertmanager"].picture is None
    assert b"pictures" not in sent("alertmanager", Drawn()).body


def test_an_address_is_good_until_it_expires_and_for_no_other_alert(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = DeliveryWorld(engine)
    alert = str(world.alert())
    assert picture_of(engine, world.alert()) is None, "the run has no points yet"
    monkeypatch.setattr("service.alerts.pictures.picture_of", lambda *_args: draw(curve([0.0, 0.1])))
    with client_on(database_url) as client:
        context: Any = client.app.state.context
        from service.channels.vault import vault_of

        pictures = Pictures(engine, lambda: vault_of(context.settings), "http://test", links=True)
        address = pictures.address({"alert": {"id": alert}}, time.time())
        assert address is not None
        answer = client.get(address)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
        assert answer.content.startswith(PNG)
        expired = pictures.address({"alert": {"id": alert}}, 0.0) or ""
        other = address.replace(alert, str(world.alert()))
        longer = address.replace("/pictures/" + alert + "/", "/pictures/" + alert + "/9")
        for wrong in (expired, other, longer, address.replace(".png", "0.png")):
            assert client.get(wrong).status_code == 404
    off = Pictures(engine, lambda: vault_of(context.settings), "http://test", links=False)
    assert off.address({"alert": {"id": alert}}, time.time()) is None


def test_a_picture_that_cannot_be_drawn_holds_up_no_message(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr("service.alerts.pictures.picture_of", broken)
    pictures = Pictures(engine, lambda: Vault(Fernet.generate_key().decode()), "http://test", links=True)
    assert pictures.png(message("firing")) is None
    assert pictures.address(message("firing"), 0.0) is None
