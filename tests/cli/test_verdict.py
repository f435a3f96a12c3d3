"""What is printed of a verdict: alarms whole, the rest in as few lines as say it."""

from __future__ import annotations

from typing import Any

import pytest

from service.cli.verdict import print_verdict


def judgement(rule: str, state: str, summary: str, **more: Any) -> dict[str, Any]:
    nothing: list[Any] = []
    parts = dict.fromkeys(("evidence", "causes", "next_checks"), nothing)
    return {"rule": rule, "state": state, "summary": summary, **parts, **more}


def test_alarms_whole_and_the_rest_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    evidence = [
        {"name": "train gap", "value": -0.0412345678, "unit": "nats", "why": ""},
        {"name": "rows read", "value": None, "unit": "rows", "why": ""},
        {"name": "held-out change", "value": "cannot tell yet", "unit": "nats", "why": ""},
        {"name": "repeated rows", "value": 12_000, "unit": "rows", "why": ""},
    ]
    cause = {"weight": "likely", "name": "repeated rows", "because": "they come again."}
    judgements = [
        judgement("data_stopped", "no", "The trainer has ended as it should."),
        judgement(
            "train_drift", "yes", "It sank.", evidence=evidence, causes=[cause], next_checks=["Look at the loader."]
        ),
        judgement("evaluation_changed", "cannot tell", "Cannot tell: run and reference share no held-out loss."),
        judgement("heldout_regression", "cannot tell", "Cannot tell: the run has no held-out loss."),
        judgement("repeated_rows", "cannot tell", "Cannot tell: no row fingerprints were sent."),
        judgement("plateau", "cannot tell", "Cannot tell yet: 9 of 10 blocks."),
        judgement("improvement", "cannot tell", "Cannot tell yet: the smallest gap that shows is 0.05 nats."),
        judgement("schedule_mismatch", "cannot tell", "Cannot tell: the run sends no learning rate."),
        judgement("non_finite", "no", "All recent losses are finite."),
    ]
    print_verdict({"state": "drifting", "body": {"because": "It sank."}}, judgements, "Stop.")
    assert capsys.readouterr().out.splitlines() == [
        "Verdict: drifting. It sank.",
        "What now: Stop.",
        "train_drift: yes. It sank.",
        "  train gap: -0.041235 nats",
        "  repeated rows: 12,000 rows",
        "  likely: repeated rows. they come again.",
        "  next: Look at the loader.",
        "Judged fine (2): data_stopped, non_finite",
        "Cannot tell (6):",
        "  evaluation_changed, heldout_regression: the run has no held-out loss.",
        "  repeated_rows: no row fingerprints were sent.",
        "  plateau: 9 of 10 blocks.",
        "  improvement: the smallest gap that shows is 0.05 nats.",
        "  schedule_mismatch: the run sends no learning rate.",
    ]


def test_nothing_but_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict({"state": "not enough data", "body": {}}, [])
    assert capsys.readouterr().out == "Verdict: not enough data.\n"
