"""What each kind of channel sends, also for names that mean harm. PACENOTE_WRITE_GOLDEN=1 writes the files anew."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from service.alerts.message import AlertLabel, RunLabel, compose
from service.channels.kinds import KINDS
from service.channels.slack import HEADER, SECTION, payload
from service.channels.webhook import MAX_BODY
from service.detect.judgement import Cause, Evidence, Judgement
from service.judgements.bodies import to_body

GOLDEN = Path(__file__).parent.parent / "golden" / "channels"
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOSTILE = "<!channel> & <@U123|x> </a>\u202egnp.exe\u202c 🏎️\x07 שלום عالم \n*b* " + "very-long-" * 30


def message(kind: str, name: str = "olmo3-7b-v7x", text: str = "a loader that shards twice") -> dict[str, Any]:
    evidence = [
        Evidence("train gap", "-0.0312 (-0.0400 … -0.0224)", "nats", "run minus reference at equal tokens"),
        Evidence("held-out change", "cannot tell yet", "nats", f"no evaluation since; {text}"),
        Evidence("share of repeated rows", 0.25, "share", "of the readings since the onset"),
    ]
    repeated = Judgement(
        "repeated_rows", "yes", 130, f"25.0% of the rows read since step 104 had been read before: {text}.", (101, 104),
        (103424.0, 106496.0), 0.25, (0.22, 0.28), "share", 1e-4, "assumed: natural twins in a corpus", 900, evidence,
        [Cause("double shard by factor 4", "shown", text)], [f"Audit the loader: {text}."],
    )  # fmt: skip
    drift = Judgement(
        "train_only_drift", "yes" if kind == "joined" else "cannot tell", 130, "Train loss sank, held-out did not.",
        (140, 150) if kind == "joined" else None, None, -0.03, (-0.04, -0.02), "nats", 0.015, "siblings", 5, evidence,
    )  # fmt: skip
    rules = ["repeated_rows", "train_only_drift"] if kind == "joined" else ["repeated_rows"]
    state = "resolved" if kind == "resolved" else "firing"
    return compose(
        kind,
        {"firing": 1, "joined": 2, "resolved": 5}[kind],
        {"firing": rules, "joined": rules[1:], "resolved": rules}[kind],
        alert=AlertLabel(
            UUID(int=2),
            "curve_and_data",
            state,
            rules,
            1_790_000_000.0,
            130,
            1_790_009_000.0 if state == "resolved" else None,
        ),
        run=RunLabel(UUID(int=1), name, "stage1", "olmo3-7b", "olmo3-7b", "1"),
        judgements={"repeated_rows": to_body(repeated), "train_only_drift": to_body(drift)},
        at=1_790_009_000.5,
        base_url="https://pacenote.example.com",
    )


CASES = {
    "firing": lambda: message("firing"),
    "updated": lambda: message("joined"),
    "resolved": lambda: message("resolved"),
    "hostile": lambda: message("firing", HOSTILE, HOSTILE),
}


@pytest.mark.parametrize("kind", ["webhook", "slack"])
@pytest.mark.parametrize("case", CASES)
def test_payload_is_the_golden_one(kind: str, case: str) -> None:
    post = KINDS[kind].write(CASES[case](), "msg", 1_790_009_001.0, SECRET if kind == "webhook" else None)
    path = GOLDEN / f"{kind}-{case}.json"
    if os.environ.get("PACENOTE_WRITE_GOLDEN"):
        path.write_text(json.dumps(json.loads(post.body), indent=1, ensure_ascii=False) + "\n")
    assert json.loads(post.body) == json.loads(path.read_text())


class TestStandardWebhook:
    def test_its_receiver_can_verify_it(self) -> None:
        post = KINDS["webhook"].write(message("firing"), "msg_1", time.time(), SECRET)
        body = Webhook(SECRET).verify(post.body, dict(post.headers))
        assert (body["type"], body["data"]["run"]["name"]) == ("alert.firing", "olmo3-7b-v7x")
        assert set(body) == {"type", "timestamp", "data"}

    def test_another_secret_or_body_does_not_verify(self) -> None:
        post = KINDS["webhook"].write(message("firing"), "msg_1", time.time(), SECRET)
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
        post = KINDS["webhook"].write(message("firing", text="ü 🏎️ " * (length // 5)), "m", time.time(), SECRET)
        assert len(post.body) < MAX_BODY
        data = json.loads(post.body)["data"]
        assert data["alert"]["url"].endswith(data["alert"]["id"])
        assert data["since"]["step"] == [101, 104]

    def test_query_of_the_address_is_not_shown(self) -> None:
        assert "key" not in KINDS["webhook"].shown("https://example.com/in?key=1")
        assert KINDS["webhook"].shown("https://example.com/in") == "https://example.com/in"


class TestSlack:
    def test_hostile_names_begin_no_link_mention_or_second_line(self) -> None:
        sent = payload(message("firing", HOSTILE, HOSTILE))
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
        sent = payload(message("firing", name, text))
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


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
