"""Limits that a run must keep: holds, fails, or cannot be told, and never the first where it is not shown."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.detect.inputs import Tolerance
from service.reports.beside import TRAIN, Compared, Comparison
from service.reports.check import Known, Limits, Outcome, check, overall
from service.reports.document import Judged, VerdictPart

STEPS = np.arange(100, 1001, 100)


def compared(
    metric: str, deviation: float, half: float, steps: np.ndarray = STEPS, window: int | None = None
) -> Compared:
    n = len(steps)
    full = np.full(n, deviation)
    first = steps - (window or 1) + 1
    return Compared(metric, metric, "nats", first, steps, steps * 1e3, 2.0 + full, np.full(n, 2.0), full,
                    np.full(n, half), Tolerance(1.0, "test"), window)  # fmt: skip


VERDICT = VerdictPart(state="consistent", because="No drift.", decided_at=None, at_step=1000, reference="r",
                      version="1", current=True, note="")  # fmt: skip
REPEATS = Judged(rule="repeated_rows", family="curve_and_data", state="no", at_step=1000, decided_at="",
                 since_step=None, summary="Not repeated.", value=0.0, interval=(0.0, 0.001), unit="share", limit=0.0001,
                 limit_source="", n=100, evidence=[])  # fmt: skip


def known(**more: object) -> Known:
    found = Comparison(
        train=compared(TRAIN, 0.01, 0.002, window=100),
        heldout=[compared("heldout/a/ce_loss", 0.001, 0.001)],
        mean=compared("downstream/mean/accuracy", 0.001, 0.002),
        tasks=[compared(f"downstream/{k}/accuracy", 0.001, 0.01) for k in range(8)],
    )
    return replace(Known(1000, found, VERDICT, REPEATS), **more)


def only(outcomes: list[Outcome]) -> Outcome:
    assert len(outcomes) == 1
    return outcomes[0]


def test_all_of_a_good_run_hold() -> None:
    outcomes = check(known(), Limits(0.02, 0.01, 0.005, True, "consistent"))
    assert [o.answer for o in outcomes] == ["holds"] * 5
    assert overall(outcomes) == "holds"


@given(st.floats(-0.1, 0.1), st.floats(0, 0.05), st.floats(1e-3, 0.1))
def test_a_gap_holds_only_where_its_whole_interval_lies_within(value: float, half: float, limit: float) -> None:
    found = replace(known().found, train=compared(TRAIN, value, half, window=100))
    one = only(check(known(found=found), Limits(gap=limit)))
    assert (one.answer == "holds") == (abs(value) + half <= limit)
    assert (one.answer == "fails") == (abs(value) - half > limit)
    assert one.step == 1000


def test_what_lies_far_back_is_not_taken_for_now() -> None:
    old = replace(known().found, train=compared(TRAIN, 0.0, 0.001, STEPS[:5], window=100))
    assert "lies 500 steps back" in (one := only(check(known(found=old), Limits(gap=0.02)))).summary
    assert one.answer == "cannot tell"
    assert only(check(known(found=old), Limits(gap=0.02, at=600))).answer == "holds"
    worse = replace(known().found, train=compared(TRAIN, 0.5, 0.001, STEPS[:5], window=100))
    assert only(check(known(found=worse), Limits(gap=0.02))).answer == "fails"


def test_a_step_that_the_run_has_not_reached_cannot_be_told_of() -> None:
    outcomes = check(known(), Limits(0.02, 0.01, 0.005, at=2000))
    assert {o.answer for o in outcomes} == {"cannot tell"}
    assert {o.answer for o in check(known(step=None), Limits(0.02, 0.01, 0.005))} == {"cannot tell"}


def test_one_task_far_away_fails_beside_a_mean_that_holds() -> None:
    far = [compared("downstream/0/accuracy", -0.2, 0.01), *known().found.tasks[1:]]
    outcomes = check(known(found=replace(known().found, tasks=far)), Limits(tasks=0.005))
    assert [(o.check, o.answer) for o in outcomes] == [
        ("mean of the tasks", "holds"), ("downstream/0/accuracy", "fails"),
    ]  # fmt: skip


def test_a_value_that_is_not_finite_fails() -> None:
    nan = compared(TRAIN, 0.0, 0.001, window=100)
    nan.values[-1] = np.nan
    assert only(check(known(found=replace(known().found, train=nan)), Limits(gap=1.0))).answer == "fails"


def test_nothing_to_compare_cannot_be_told() -> None:
    bare = Comparison(None, [], None, [])
    outcomes = check(known(found=bare, repeats=None), Limits(0.02, 0.01, 0.005, True))
    assert {o.answer for o in outcomes} == {"cannot tell"}


@pytest.mark.parametrize(
    ("state", "current", "least", "answer"),
    [
        ("matching", True, "matching", "holds"),
        ("matching", True, "consistent", "holds"),
        ("consistent", True, "matching", "cannot tell"),
        ("consistent", False, "consistent", "cannot tell"),
        ("not enough data", True, "consistent", "cannot tell"),
        ("drifting", True, "consistent", "fails"),
        ("diverged", False, "consistent", "fails"),
        (None, False, "consistent", "cannot tell"),
    ],
)
def test_a_verdict(state: str | None, current: bool, least: str, answer: str) -> None:

    verdict = msgspec.structs.replace(VERDICT, state=state, current=current, note="" if current else "New data.")
    assert only(check(known(verdict=verdict), Limits(verdict=least))).answer == answer


@pytest.mark.parametrize(
    ("state", "since", "at_step", "at", "answer"),
    [
        ("no", None, 1000, None, "holds"),
        ("no", None, 800, None, "cannot tell"),
        ("no", None, 800, 700, "holds"),
        ("yes", (300, 320), 1000, None, "fails"),
        ("yes", (300, 320), 1000, 200, "holds"),
        ("yes", (300, 320), 1000, 310, "cannot tell"),
        ("cannot tell", None, 1000, None, "cannot tell"),
    ],
)
def test_repeated_rows(state: str, since: tuple[int, int] | None, at_step: int, at: int | None, answer: str) -> None:

    repeats = msgspec.structs.replace(REPEATS, state=state, since_step=since, at_step=at_step)
    assert only(check(known(repeats=repeats), Limits(no_repeats=True, at=at))).answer == answer
