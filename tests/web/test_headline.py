"""The headline of a run's page, from judgements as they are stored."""

from __future__ import annotations

from typing import Any

from service.detect.judgement import Cause, Evidence, Judgement
from service.judgements.bodies import to_body
from web.content.headline import all_evidence, causes, facts, in_order, next_checks, onset


def bodies(*judgements: Judgement) -> dict[str, dict[str, Any]]:
    return {judgement.rule: to_body(judgement) for judgement in judgements}


HELD = Evidence("held-out change", "+0.0886 (+0.0798 … +0.0974)", "nats", "why")
DRIFT = Judgement(
    "train_drift", "yes", 400, "It drifts.", (101, 250), (103_424.0, 256_000.0), -0.329, (-0.343, -0.315), "nats",
    0.103,
    evidence=[HELD, Evidence("rows read", 3200, "rows", ""), Evidence("distinct rows", 800, "rows", "")],
    next_checks=["Look.", "Compare."],
)  # fmt: skip
ALONE = Judgement(
    "train_only_drift", "yes", 400, "It memorizes.", (101, 250), (float("nan"), float("nan")), -0.329,
    causes=[Cause("other order", "possible", "why not"), Cause("double shard by factor 4", "likely", "losses")],
    evidence=[HELD],
)  # fmt: skip
ROWS = Judgement(
    "repeated_rows", "yes", 400, "Rows repeat.", (101, 101), (103_424.0, 103_424.0), 0.75, unit="share",
    causes=[Cause("double shard by factor 4", "shown", "rows"), Cause("natural twins", "ruled out", "too many")],
    next_checks=["Audit.", "Look."],
)  # fmt: skip


def shown(*judgements: Judgement) -> dict[str, tuple[str, str, str]]:
    return {fact.label: (fact.value, fact.note, fact.tone) for fact in facts(bodies(*judgements))}


def test_nothing_before_the_first_judgement() -> None:
    assert facts({}) == []


def test_a_drift_says_since_when_how_far_and_why() -> None:
    found = shown(DRIFT, ALONE, ROWS)
    assert found["No longer the same since"] == ("step 101", "103k tokens", "warn")
    assert found["Train gap"] == ("−0.329 ± 0.014 nats", "tolerance ±0.103", "warn")
    assert found["Held-out change"] == ("+0.0886 nats", "+0.0798 to +0.0974, does not follow", "warn")
    assert found["Repeated rows"] == ("75.0\u202f%", "800 distinct of 3,200 rows read", "warn")
    assert found["First cause"] == ("double shard by factor 4", "shown", "warn")


def test_a_healthy_run_says_how_far_it_was_judged() -> None:
    calm = Judgement(
        "train_drift", "no", 250, "Fine.", value=-0.0004, interval=(-0.012, 0.0112), unit="nats", limit=0.103,
        evidence=[Evidence("held-out change", "cannot tell yet", "nats", "what it is; train has not sunk")],
    )  # fmt: skip
    found = shown(calm, Judgement("repeated_rows", "no", 250, "None.", value=0.0, unit="share"))
    assert found["No longer the same since"] == ("no drift seen", "judged up to step 250", "")
    assert found["Train gap"] == ("0.000 ± 0.012 nats", "tolerance ±0.103", "")
    assert found["Held-out change"] == ("cannot tell yet", "train has not sunk", "")
    assert found["Repeated rows"] == ("0.0\u202f%", "", "")
    assert found["First cause"] == ("nothing to explain", "", "")


def test_what_cannot_be_told_is_not_called_fine() -> None:
    found = shown(Judgement("train_drift", "cannot tell", 3, "Cannot tell yet: 0 of 2 blocks."))
    assert found["No longer the same since"][0] == "cannot tell yet"
    assert found["Train gap"] == ("cannot tell yet", "Cannot tell yet: 0 of 2 blocks.", "")
    assert found["Held-out change"][0] == "cannot tell yet"
    assert found["Repeated rows"][0] == "not known"


def test_an_uncertain_held_out_change_keeps_its_numbers() -> None:
    unsure = Evidence("held-out change", "cannot tell yet (-0.0100 (-0.0300 … +0.0100))", "nats", "why")
    found = shown(
        Judgement("train_drift", "yes", 300, "It drifts.", (1, 2), None, -0.2, unit="nats", evidence=[unsure])
    )
    assert found["Held-out change"] == ("cannot tell yet", "−0.0100 (−0.0300 to +0.0100) nats", "")


def test_onset_is_the_earliest_and_knows_tokens_only_where_they_are() -> None:
    assert onset(bodies(DRIFT, ROWS)) == ([101, 101], [103_424.0, 103_424.0])
    assert onset(bodies(ALONE)) == ([101, 250], None)
    assert onset(bodies(Judgement("train_drift", "no", 1, ""))) is None


def test_causes_and_checks_are_told_once_the_strongest_first() -> None:
    ranked = causes(bodies(DRIFT, ALONE, ROWS))
    assert [(cause["name"], cause["weight"]) for cause in ranked] == [
        ("double shard by factor 4", "shown"),
        ("other order", "possible"),
        ("natural twins", "ruled out"),
    ]
    assert next_checks(bodies(DRIFT, ALONE, ROWS)) == ["Audit.", "Look.", "Compare."]
    assert [body["rule"] for body in in_order(bodies(DRIFT, ALONE, ROWS))] == [
        "repeated_rows",
        "train_only_drift",
        "train_drift",
    ]
    assert [item["name"] for item in all_evidence(bodies(DRIFT, ALONE))] == [
        "held-out change",
        "rows read",
        "distinct rows",
    ]
