"""What Apprise's services are sent, and which of its addresses are taken."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any, cast

import apprise
import pytest
import requests
from alert_message import message
from hypothesis import given, settings
from hypothesis import strategies as st

from service.channels.apprise import harmless
from service.channels.apprise import written as apprise_text
from service.channels.kinds import KINDS
from service.channels.safety import UnsafeAddressError


class _Tags(HTMLParser):
    """The tags of a text in HTML that were opened and not closed, or closed without having been opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1:] == [tag]:
            self.open.pop()
        else:
            self.open.append(f"/{tag}")


def _left_open(text: str) -> list[str]:
    tags = _Tags()
    tags.feed(text)
    return tags.open


def _captured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Apprise asks `requests` to send from now on, as it stands in JSON without escapes."""
    sent: list[str] = []

    def request(_self: requests.Session, **more: Any) -> requests.Response:
        sent.append(json.dumps(json.loads(more["data"]), ensure_ascii=False))
        answer = requests.Response()
        answer.status_code = 200
        return answer

    monkeypatch.setattr(requests.Session, "request", request)
    return sent


class TestApprise:
    @settings(max_examples=60, deadline=None)
    @given(st.text(max_size=400), st.text(max_size=5000), st.sampled_from([0, 30, 250]), st.integers(120, 32_768))
    def test_title_and_text_stay_inside_the_services_limits(
        self, name: str, text: str, title_limit: int, body_limit: int
    ) -> None:
        title, body = apprise_text(message("firing", name, text), title_limit, body_limit)
        assert len(title) <= title_limit
        assert 0 < len(body) <= body_limit

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("dbus://", "this machine only"),
            ("syslog://", "this machine only"),
            ("slack://TokenA/TokenB/TokenC/?template=/etc/passwd", "reads a file"),
            ("nonsense://x", "no address that Apprise knows"),
            ("json://127.0.0.1/x", "not a public address"),
            ("mailto://user:pass@example.com?smtp=10.0.0.1", "not a public address"),
        ],
    )
    def test_unsafe_addresses_are_refused(self, url: str, why: str) -> None:
        with pytest.raises(UnsafeAddressError, match=why):
            KINDS["apprise"].check(url, allow_private=False)

    @pytest.mark.parametrize("of", ["discord", "discord-markdown", "tgram", "mmost", "slack", "wxteams", "gchat"])
    def test_no_service_makes_more_than_text_of_a_hostile_name(self, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
        hook = f"discord://{'1' * 18}/{'a' * 68}"
        addresses = {
            "discord": hook, "discord-markdown": f"{hook}?format=markdown", "tgram": "tgram://123456789:abcdefg/12315544",
            "mmost": f"mmost://192.0.2.1/{'a' * 24}", "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/",
            "wxteams": f"wxteams://{'a' * 80}", "gchat": "gchat://space/key/token",
        }  # fmt: skip
        sent = _captured(monkeypatch)
        hostile = "<b>h <!channel> <@U1> <users/all> &lt;i&gt; @everyone @**all** @channel [x](http://evil) [y][z]"
        title, body = apprise_text(message("firing", hostile, hostile), 250, 3_000)
        cast("Any", apprise.Apprise).instantiate(addresses[of]).notify(
            title=title, body=body, notify_type=apprise.NotifyType.FAILURE, body_format="text"
        )
        assert sent
        for one in sent:
            for name in ("everyone", "channel", "**all**", r"\*\*all\*\*"):
                assert f"@{name}" not in one
            assert "](http" not in one
            assert not any(mark in one for mark in ("<!", "<@", "<users", "<i"))
            if of == "tgram":
                assert _left_open(one) == []

    @given(st.text(max_size=200) | st.text("<>&;#@[]()ab ", max_size=60))
    def test_nothing_that_begins_markup_is_left_and_the_rest_is_as_it_was(self, text: str) -> None:
        made = harmless(text)
        assert not set("<>") & set(made)
        assert "](" not in made
        assert not any(after not in ("\u200b", " ") for at, after in pairwise(made) if at == "@")
        if not set("<>&@]") & set(text):
            assert made == " ".join(made.split()) == harmless(made)

    def test_passwords_are_not_shown(self) -> None:
        assert "hush" not in KINDS["apprise"].shown("mailto://user:hush@example.com")
