"""What each kind of channel sends, also for names that mean harm. PACENOTE_WRITE_GOLDEN=1 writes the files anew."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from alert_message import long_message, message
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from service.channels import discord
from service.channels.discord import Discord
from service.channels.google_chat import GoogleChat
from service.channels.grouping import bundle
from service.channels.kind import HttpKind, Outgoing, Post
from service.channels.kinds import KINDS
from service.channels.mattermost import Mattermost
from service.channels.names import KindName
from service.channels.slack import HEADER, SECTION, Slack
from service.channels.teams import Teams
from service.channels.webhook import MAX_BODY
from service.database.models import Delivery

GOLDEN = Path(__file__).parent.parent / "golden" / "channels"
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOSTILE = "<!channel> & <@U123|x> </a>\u202egnp.exe\u202c 🏎️\x07 שלום عالم \n*b* " + "very-long-" * 30


HTTP_KINDS = [name for name, kind in KINDS.items() if isinstance(kind, HttpKind)]


def written(
    kind: str, content: Mapping[str, Any], *, now: float = 1_790_009_001.0, previous: str | None = None
) -> Post:
    channel = KINDS[kind]
    assert isinstance(channel, HttpKind)
    secret = SECRET if kind == "webhook" else None
    return channel.write(Outgoing("https://chat.example.com/in", content, "msg_1", now, secret, previous))


def sample_message(name: str = "team") -> dict[str, Any]:
    return {
        "type": "channel.test",
        "title": f"Pacenote test message to {name}",
        "at": "2026-09-21T14:30:00Z",
        "summary": ["Alerts about runs will be sent here."],
        "facts": [{"label": "Service", "text": "https://pacenote.example.com"}],
    }


MARKS = "<!channel> <@U1> @everyone @channel @all @here <users/all> <at>x</at> [x](http://evil) **b** `c` ~s~ _i_ "
MARKS += ":fire: {{DATE()}} ||s|| # h &lt; 🏎️‮"
MARKS += "é" * ((256 - len(MARKS.encode())) // 2) + "x" * ((256 - len(MARKS.encode())) % 2)  # as long as a name may be


def grouped(count: int = 12) -> Mapping[str, Any]:
    """What a group of so many alerts of two runs says, of which some are over."""
    kinds = ("firing", "resolved", "firing")
    names = ("olmo3-7b-v7x", MARKS)
    members = [message(kinds[i % 3], names[i % 2], alert=i + 2) for i in range(count)]
    return bundle([Delivery(uuid=UUID(int=100 + i), payload=member) for i, member in enumerate(members)], "project")


CASES: dict[str, Callable[[], Mapping[str, Any]]] = {
    "test": sample_message,
    "firing": lambda: message("firing"),
    "updated": lambda: message("joined"),
    "resolved": lambda: message("resolved"),
    "hostile": lambda: message("firing", HOSTILE, HOSTILE),
    "marks": lambda: message("joined", MARKS, MARKS, reason=f"resolved by {MARKS}"),
    "unmuted": lambda: message("unmuted", reason="the mute is over"),
    "repeated": lambda: message("repeated"),
    "by_hand": lambda: message("resolved", reason="resolved by kim: known"),
    "grouped": grouped,
    "limits": lambda: long_message("word "),
}
PICTURE = "https://pacenote.example.com/pictures/00000000-0000-0000-0000-000000000002/1790613800/signature.png"


@pytest.mark.parametrize("kind", HTTP_KINDS)
@pytest.mark.parametrize("case", CASES)
def test_payload_is_the_golden_one(kind: str, case: str) -> None:
    check_golden(kind, case, CASES[case]())


@pytest.mark.parametrize("kind", [name for name in HTTP_KINDS if KINDS[name].picture == "address"])
def test_payload_with_a_picture_is_the_golden_one(kind: str) -> None:
    post = check_golden(kind, "picture", {**message("firing"), "picture": PICTURE})
    assert PICTURE in post.body.decode()


def check_golden(kind: str, case: str, content: Mapping[str, Any]) -> Post:
    post = written(kind, content)
    path = GOLDEN / f"{kind}-{case}.json"
    if os.environ.get("PACENOTE_WRITE_GOLDEN"):
        path.write_text(json.dumps(json.loads(post.body), indent=1, ensure_ascii=False) + "\n")
    assert json.loads(post.body) == json.loads(path.read_text())
    return post


# Bodies may not be longer: bytes (Mattermost: characters), as the receivers document it; Slack and Discord limit parts.
WHOLE = {"webhook": 20_000, "google_chat": 32_000, "teams": 28_000, "mattermost": 16_383, "alertmanager": 200_000}


@pytest.mark.parametrize("character", ["word ", "&", "<", "\\", '"', "🏎", "\n", "*", "_", "@x ", "\x01a", "ש", "é"])
@pytest.mark.parametrize("kind", HTTP_KINDS)
def test_limits_hold_whatever_all_texts_are_made_of(kind: str, character: str) -> None:
    for content in (long_message(character), {**long_message(character), "picture": PICTURE}):
        body = written(kind, content).body
        size_of_body = len(body.decode()) if kind == "mattermost" else len(body)
        assert size_of_body < WHOLE.get(kind, 40_000)
        payload = json.loads(body)
        if kind == "slack":
            check_slack(payload)
        if kind == "discord":
            check_discord(payload)


@pytest.mark.parametrize("kind", HTTP_KINDS)
def test_a_group_of_a_hundred_stays_inside_the_limits_and_names_every_message(kind: str) -> None:
    body = written(kind, grouped(100)).body
    assert len(body) < WHOLE.get(kind, 40_000)
    if kind == "webhook":
        listed = json.loads(body)["data"]["group"]["messages"]
        assert [entry["id"] for entry in listed] == [str(UUID(int=100 + i)) for i in range(100)]
    if kind == "alertmanager":
        assert len(json.loads(body)["alerts"]) == 100


@pytest.mark.parametrize("kind", [name for name in HTTP_KINDS if name not in ("webhook", "alertmanager")])
@pytest.mark.parametrize("case", ["marks", "grouped"])
def test_names_turn_no_line_and_begin_no_mention_in_any_chat(kind: str, case: str) -> None:
    payload = json.loads(written(kind, CASES[case]()).body)
    assert not any(mark in text for text in texts_of(payload) for mark in ("\u202e", "\x07"))
    read = [re.sub(r"\\.", "", text) for text in read_as_markup(kind, payload)]  # without what is escaped
    assert not any(mark in text for text in read for mark in ("<!", "<@", "<users", "<at>"))
    if kind == "discord":
        assert payload["allowed_mentions"] == {"parse": []}
    if kind == "mattermost":
        assert not any(word in text for text in read for word in ("@all", "@channel", "@here"))
    if kind == "teams":
        assert "entities" not in payload["attachments"][0]["content"]["msteams"]
        assert '"TextBlock"' not in json.dumps(payload)
    if kind == "slack":
        assert all(part["verbatim"] for part in parts_of(payload) if part.get("type") == "mrkdwn")
        assert not any(mark in text for text in read for mark in ("`", "~", "_i_", "**"))


def read_as_markup(kind: str, payload: dict[str, Any]) -> Iterator[str]:
    """The texts in which a chat looks for markup and mentions; it shows the others as they are."""
    if kind == "slack":
        yield payload["text"]
        yield from (part["text"] for part in parts_of(payload) if part.get("type") == "mrkdwn")
    if kind == "discord":
        [embed] = payload["embeds"]
        yield from (embed["title"], embed["description"])
        yield from (field[part] for field in embed["fields"] for part in ("name", "value"))
    if kind == "google_chat":
        yield payload["text"]
        yield from (part["text"] for part in parts_of(payload) if "text" in part and isinstance(part["text"], str))
    if kind == "mattermost":
        [attachment] = payload["attachments"]
        yield from (payload["text"], attachment["title"], attachment["text"])
        yield from (field[part] for field in attachment["fields"] for part in ("title", "value"))


def check_slack(payload: dict[str, Any]) -> None:
    header, *others = payload["blocks"]
    assert 0 < utf16(header["text"]["text"]) <= HEADER
    assert utf16(payload["text"]) <= 4000
    assert len(payload["blocks"]) <= 50
    for block in others:
        for part in [block["text"]] if "text" in block else block.get("elements", ()):
            assert 0 < utf16(part["text"]) <= SECTION


def check_discord(payload: dict[str, Any]) -> None:
    [embed] = payload["embeds"]
    assert 0 < utf16(embed["title"]) <= discord.TITLE
    assert utf16(embed["description"]) <= discord.DESCRIPTION
    assert len(embed["fields"]) <= discord.FIELDS
    texts = [embed["title"], embed["description"], embed["footer"]["text"]]
    texts += [field[part] for field in embed["fields"] for part in ("name", "value")]
    assert sum(map(utf16, texts)) <= discord.TOTAL


def parts_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a payload."""
    if isinstance(value, dict):
        yield cast("dict[str, Any]", value)
        for item in cast("dict[str, Any]", value).values():
            yield from parts_of(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from parts_of(item)


def texts_of(value: Any) -> Iterator[str]:
    """Every text inside a payload."""
    for part in parts_of(value):
        yield from (text for text in part.values() if isinstance(text, str))


class TestStandardWebhook:
    def test_its_receiver_can_verify_it(self) -> None:
        post = written("webhook", message("firing"), now=time.time())
        body = Webhook(SECRET).verify(post.body, dict(post.headers))
        assert (body["type"], body["data"]["run"]["name"]) == ("alert.firing", "olmo3-7b-v7x")
        assert set(body) == {"type", "timestamp", "data"}

    def test_both_secrets_verify_while_they_change(self) -> None:
        old = KINDS["webhook"].secret(None)
        post = written("webhook", message("firing"), now=time.time(), previous=old)
        assert old is not None
        assert post.headers["webhook-signature"].count("v1,") == 2
        for secret in (SECRET, old):
            assert Webhook(secret).verify(post.body, dict(post.headers))["type"] == "alert.firing"

    def test_another_secret_or_body_does_not_verify(self) -> None:
        post = written("webhook", message("firing"), now=time.time())
        other = KINDS["webhook"].secret(None)
        assert other is not None
        with pytest.raises(WebhookVerificationError):
            Webhook(other).verify(post.body, dict(post.headers))
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(post.body + b" ", dict(post.headers))

    def test_made_secrets_are_long_and_differ(self) -> None:
        made = {KINDS["webhook"].secret(None) for _ in range(10)}
        assert len(made) == 10
        assert all(secret is not None and KINDS["webhook"].secret(secret) == secret for secret in made)

    @pytest.mark.parametrize("given", ["", "whsec_", "whsec_short", "whsec_!!!!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
    def test_what_is_no_secret_is_refused(self, given: str) -> None:
        with pytest.raises(ValueError, match="must be whsec_"):
            KINDS["webhook"].secret(given)

    @pytest.mark.parametrize("length", [10, 1_000, 10_000, 300_000])
    def test_the_body_stays_below_the_limit_and_keeps_its_links(self, length: int) -> None:
        post = written("webhook", message("firing", text="ü 🏎️ " * (length // 5)))
        assert len(post.body) < MAX_BODY
        data = json.loads(post.body)["data"]
        assert data["alert"]["url"].endswith(data["alert"]["id"])
        assert data["since"]["step"] == [101, 104]

    def test_query_of_the_address_is_not_shown(self) -> None:
        assert "key" not in KINDS["webhook"].shown("https://example.com/in?key=1")
        assert KINDS["webhook"].shown("https://example.com/in") == "https://example.com/in"


class TestSlack:
    def test_hostile_names_begin_no_link_mention_or_second_line(self) -> None:
        sent = Slack().payload(message("firing", HOSTILE, HOSTILE))
        texts = [sent["text"]]
        texts += [b["text"]["text"] for b in sent["blocks"] if b["type"] == "section"]
        texts += [element["text"] for b in sent["blocks"] if b["type"] == "context" for element in b["elements"]]
        for text in texts:
            assert "<!" not in text
            assert "<@" not in text
            assert "\u202e" not in text
            assert "\x07" not in text
        assert "\n" not in sent["blocks"][0]["text"]["text"]

    @settings(max_examples=60, deadline=None)
    @given(st.text(max_size=400), st.text(max_size=5000))
    def test_limits_hold_for_any_text(self, name: str, text: str) -> None:
        sent = Slack().payload(message("firing", name, text))
        header, *others = sent["blocks"]
        assert 0 < utf16(header["text"]["text"]) <= HEADER
        assert utf16(sent["text"]) <= 4000
        for block in others:
            for part in [block["text"]] if "text" in block else block["elements"]:
                assert 0 < utf16(part["text"]) <= SECTION
                assert "&" not in part["text"][-4:] or part["text"].endswith(";")

    def test_the_address_is_not_shown(self) -> None:
        assert KINDS["slack"].shown("https://hooks.slack.com/services/T0/B0/secret") == "https://hooks.slack.com/…"

    def test_a_secret_is_refused(self) -> None:
        with pytest.raises(ValueError, match="not used"):
            KINDS["slack"].secret("x")


def test_every_kind_has_its_word() -> None:
    assert [word.value for word in KindName] == list(KINDS)
    assert all(kind.name == word for word, kind in KINDS.items())


class TestDiscord:
    @settings(max_examples=60, deadline=None)
    @given(st.text(max_size=400), st.text(max_size=5000))
    def test_limits_hold_for_any_text(self, name: str, text: str) -> None:
        [embed] = Discord().payload(message("firing", name, text))["embeds"]
        fields = embed["fields"]
        assert 0 < utf16(embed["title"]) <= discord.TITLE
        assert utf16(embed["description"]) <= discord.DESCRIPTION
        assert embed["description"].endswith("(https://pacenote.example.com/runs/00000000-0000-0000-0000-000000000001)")
        assert all(0 < utf16(f["name"]) <= 256 and 0 < utf16(f["value"]) <= 1024 for f in fields)
        texts = [embed["title"], embed["description"], embed["footer"]["text"]]
        texts += [field[part] for field in fields for part in ("name", "value")]
        assert sum(map(utf16, texts)) <= discord.TOTAL

    def test_nobody_is_pinged_and_no_markup_begins(self) -> None:
        sent = Discord().payload(message("firing", "@everyone [x](http://evil) **b** <@1>", "`c` ||s|| # h"))
        assert sent["allowed_mentions"] == {"parse": []}
        assert r"\[x\]\(http\://evil\)" in sent["embeds"][0]["title"]
        assert r"\<\@1\>" in sent["embeds"][0]["title"]


class TestGoogleChat:
    @settings(max_examples=40, deadline=None)
    @given(st.text(max_size=400), st.text(max_size=5000))
    def test_stays_below_its_32_kilobytes(self, name: str, text: str) -> None:
        assert size(GoogleChat().payload(message("firing", name, text))) < 32_000

    def test_names_begin_no_mention_and_no_tag(self) -> None:
        sent = GoogleChat().payload(message("firing", "<users/all> <b>x</b>", "<a href='http://evil'>x</a>"))
        assert "<" not in sent["text"]
        widgets = sent["cardsV2"][0]["card"]["sections"][0]["widgets"]
        texts = [w["textParagraph"]["text"] for w in widgets if "textParagraph" in w]
        assert any("&lt;a href" in text for text in texts)
        assert not any("<" in text for text in texts)

    def test_an_alert_keeps_to_one_thread(self) -> None:
        kinds = ("firing", "joined", "resolved")
        assert len({GoogleChat().payload(message(kind))["thread"]["threadKey"] for kind in kinds}) == 1


class TestTeams:
    @settings(max_examples=40, deadline=None)
    @given(st.text(max_size=400), st.text(max_size=20_000))
    def test_stays_below_its_28_kilobytes(self, name: str, text: str) -> None:
        assert size(Teams().payload(message("firing", name, text))) < 28_000

    def test_texts_are_runs_which_know_no_markup(self) -> None:
        card = Teams().payload(message("firing", "[x](http://evil) **b**"))["attachments"][0]["content"]
        assert '"TextBlock"' not in json.dumps(card)
        assert "[x](http://evil) **b**" in card["body"][0]["items"][0]["inlines"][0]["text"]
        assert [action["title"] for action in card["actions"]] == ["Alert", "Run"]


class TestMattermost:
    def test_nobody_is_mentioned_and_no_markup_begins(self) -> None:
        sent = Mattermost().payload(message("firing", "@channel [x](http://evil)", "@all #tag ![i](u)"))
        [attachment] = sent["attachments"]
        shown = attachment["title"] + attachment["text"].rpartition("\n")[0]
        assert "@channel" not in shown
        assert "@all" not in shown
        assert r"\[x\]\(http" in shown

    @settings(max_examples=40, deadline=None)
    @given(st.text(max_size=400), st.text(max_size=20_000))
    def test_stays_below_a_posts_length(self, name: str, text: str) -> None:
        assert len(json.dumps(Mattermost().payload(message("firing", name, text)), ensure_ascii=False)) < 16_383


def size(payload: dict[str, Any]) -> int:
    return len(json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace"))


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
