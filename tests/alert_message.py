"""A message about an alert of two rules, for tests of what is sent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from service.alerts.message import HEADLINES, AlertLabel, RunLabel, compose
from service.detect.judgement import Cause, Evidence, Judgement
from service.judgements.bodies import to_body

NUMBERS = {"firing": 1, "joined": 2, "unmuted": 3, "repeated": 4, "resolved": 5}  # of the change, by its kind


def message(
    kind: str,
    name: str = "olmo3-7b-v7x",
    text: str = "a loader that shards twice",
    *,
    alert: int = 2,
    reason: str | None = None,
) -> dict[str, Any]:
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
        NUMBERS[kind],
        rules[1:] if kind == "joined" else rules,
        alert=AlertLabel(
            UUID(int=alert),
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
        reason=reason,
    )


def long_message(character: str, length: int = 6000) -> dict[str, Any]:
    """A message about many rules in which every text and name is as long as it may be, of this character."""
    text, rules = (character * length)[:length], list(HEADLINES)[:14]
    name = (character * 256).encode()[:256].decode(errors="ignore")
    bodies: dict[str, Any] = {}
    for rule in rules:
        evidence = [Evidence(f"{rule} {number} {text[:300]}", text, "nats", text) for number in range(3)]
        judgement = Judgement(
            rule, "yes", 130, text, (101, 104), (1.0, 2.0), 0.25, (0.2, 0.3), "share", 1e-4, text, 900, evidence,
            [Cause(text[:500], "shown", text)], [text],
        )  # fmt: skip
        bodies[rule] = to_body(judgement)
    recovery = {"since_step": [101, 104], "clean": None, "affected": 1, "cost": None, "summary": text}
    return compose(
        "firing",
        1,
        rules,
        alert=AlertLabel(UUID(int=2), "curve_and_data", "firing", rules, 1_790_000_000.0, 130),
        run=RunLabel(UUID(int=1), name, name, name, name, "1"),
        judgements=bodies,
        at=1_790_009_000.5,
        base_url="https://pacenote.example.com",
        recovery=recovery,
    )
