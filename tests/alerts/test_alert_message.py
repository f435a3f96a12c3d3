"""What a message says, in numbers and in words."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from service.alerts.message import AlertLabel, RunLabel, compose, cut, severity_of, title_of, tokens_in_words
from service.detect.judgement import Cause, Evidence, Judgement
from service.judgements.bodies import to_body

RUN = RunLabel(UUID(int=1), "olmo3-7b-v7x", "stage1", "olmo3-7b", "olmo3-7b", "1")
ALERT = AlertLabel(UUID(int=2), "curve_and_data", "firing", ["repeated_rows"], 1000.0, 130)
FIVE = [
    Evidence("train gap", "-0.0312 (-0.0400 … -0.0224)", "nats", "run minus reference"),
    Evidence("held-out change", "cannot tell yet", "nats", "no evaluation since"),
    Evidence("share of repeated rows", 0.2567, "share", "of the readings"),
    Evidence("rows read", 51_200, "rows", "all"),
    Evidence("distinct rows", 38_058, "rows", "different"),
]
REPEATED = Judgement(
    "repeated_rows", "yes", 130, "25.7% of the rows had been read before.", (101, 104), (1.03e5, 1.06e5), 0.2567,
    (0.24, 0.27), "share", 1e-4, "assumed", 900, FIVE,
    [Cause("natural twins", "ruled out", "too many"), Cause("double shard by factor 4", "shown", "coverage 1/4"),
     Cause("replay", "possible", "no restart")], ["Audit the loader."],
)  # fmt: skip
ONLY = Judgement("train_only_drift", "cannot tell", 130, "Cannot tell yet.", evidence=FIVE)


def composed(kind: str = "firing", **more: Any) -> dict[str, Any]:
    bodies = {"train_only_drift": to_body(ONLY), "repeated_rows": to_body(REPEATED)}
    told: dict[str, Any] = {
        "alert": ALERT,
        "run": RUN,
        "judgements": bodies,
        "at": 1000.5,
        "base_url": "http://x",
        **more,
    }
    return compose(kind, 1, ["repeated_rows"], **told)


def test_it_names_what_since_when_and_where_to_look() -> None:
    message = composed()
    assert message["type"] == "alert.firing"
    assert message["title"] == "olmo3-7b-v7x: training rows repeat, since step 101"
    assert message["at"] == "1970-01-01T00:16:40.500Z"
    assert message["alert"]["url"] == f"http://x/alerts/{UUID(int=2)}"
    assert message["run"]["url"] == f"http://x/runs/{UUID(int=1)}"
    assert message["since"] == {"step": [101, 104], "tokens": [1.03e5, 1.06e5]}


def test_facts_carry_the_five_numbers_and_the_first_cause_in_words() -> None:
    facts = {fact["label"]: fact["text"] for fact in composed()["facts"]}
    assert facts == {
        "Since": "step 101 – 104 (103 K – 106 K tokens)",
        "Train gap": "-0.0312 (-0.0400 … -0.0224) nats",
        "Held-out change": "cannot tell yet",
        "Share of repeated rows": "25.67%",
        "Rows read": "51,200 rows",
        "Distinct rows": "38,058 rows",
        "First cause": "double shard by factor 4 (shown): coverage 1/4",
        "Check next": "Audit the loader.",
    }


def test_causes_that_are_ruled_out_are_not_named_and_the_surest_comes_first() -> None:
    assert [cause["name"] for cause in composed()["causes"]] == ["double shard by factor 4", "replay"]


def test_numbers_of_rules_that_did_not_join_are_there_too() -> None:
    message = composed()
    assert [(j["rule"], j["state"]) for j in message["judgements"]] == [
        ("repeated_rows", "yes"),
        ("train_only_drift", "cannot tell"),
    ]
    assert message["summary"] == ["25.7% of the rows had been read before."]


def test_a_resolved_message_says_so() -> None:
    resolved = AlertLabel(ALERT.uuid, ALERT.family, "resolved", ALERT.rules, 1000.0, 130, 2000.0)
    message = composed("resolved", alert=resolved)
    assert (message["type"], message["alert"]["state"]) == ("alert.resolved", "resolved")
    assert message["alert"]["resolved_at"] == "1970-01-01T00:33:20.000Z"


def test_an_onset_without_tokens_is_still_a_step() -> None:
    body = to_body(Judgement("non_finite", "yes", 7, "NaN", (7, 7), (float("nan"), float("nan"))))
    alert = AlertLabel(UUID(int=2), "stability", "firing", ["non_finite"], 0.0, 7)
    message = compose(
        "firing", 1, ["non_finite"], alert=alert, run=RUN, judgements={"non_finite": body}, at=0.0, base_url=""
    )
    assert message["facts"][0] == {"label": "Since", "text": "step 7"}


def test_a_title_fits_its_column_whatever_the_run_is_called() -> None:
    body = {"repeated_rows": to_body(REPEATED)}
    assert len(title_of("x" * 1000, ["repeated_rows", "train_drift"] * 20, body)) <= 512


@pytest.mark.parametrize(
    ("rules", "severity"),
    [(["train_drift"], "warning"), (["train_drift", "repeated_rows"], "critical"), (["non_finite"], "critical")],
)
def test_severity_is_that_of_the_gravest_rule(rules: list[str], severity: str) -> None:
    assert severity_of(rules) == severity


def test_cut_ends_at_a_word() -> None:
    assert cut("one two three", 13) == "one two three"
    assert cut("one two three", 12) == "one two…"
    assert cut("x" * 20, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("tokens", "words"),
    [(0.0, "0"), (999.0, "999"), (102_400.0, "102 K"), (4_194_304.0, "4.19 M"), (5.93e12, "5.93 T"), (2e15, "2,000 T")],
)
def test_tokens_in_words(tokens: float, words: str) -> None:
    assert tokens_in_words(tokens) == words
