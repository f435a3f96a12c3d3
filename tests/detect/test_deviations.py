"""Declared deviations explain a gap within their budget and their span, on their side, and no more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.detect.deviations import EXCEEDED, EXPIRED, RESTS_ON, allowance, mean_budgets, rest_on, standing
from service.detect.engine import evaluate, verdict
from service.detect.inputs import Deviation, RunView, Series
from service.detect.judgement import Judgement
from service.detect.replay import judge_prefixes, prefix

from .scenarios import HELD, TOKENS_PER_STEP, TRAIN, pair, step_change

Floats = NDArray[np.float64]
STEPS = 20_000


def deviation(budget: float = -0.05, metric: str = TRAIN, **more: object) -> Deviation:
    return Deviation("newer crawl", "data", {metric: budget}, **{"end_step": STEPS, "by": "Ann", **more})  # type: ignore[arg-type]


def answers(view: RunView, *deviations: Deviation) -> dict[str, Judgement]:
    return {j.rule: j for j in evaluate(replace(view, deviations=deviations))}


def at(*steps: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    array = np.array(steps, np.int64)
    return array, array, array * TOKENS_PER_STEP


@pytest.fixture(scope="module")
def sunk() -> RunView:
    """Train loss 0.04 below the reference's from step 8,000 on, held-out with it."""
    drop = step_change(8_000, -0.04)
    return pair(3, steps=STEPS, train=drop, heldout=drop)


class TestAllowance:
    def test_none_without_a_budget_for_the_metric(self) -> None:
        assert allowance([deviation()], HELD, *at(1)) is None
        assert allowance([], TRAIN, *at(1)) is None

    def test_several_add_up_on_their_sides_and_over_their_spans(self) -> None:
        several = [
            deviation(-0.02, from_step=10, end_step=30),
            deviation(-0.01, from_step=20, end_step=40),
            deviation(+0.03, end_step=25),
        ]
        allowed = allowance(several, TRAIN, *at(5, 10, 20, 25, 26, 31, 41))
        assert allowed is not None
        assert allowed.low == pytest.approx([0.0, -0.02, -0.03, -0.03, -0.03, -0.01, 0.0])
        assert allowed.high == pytest.approx([0.03, 0.03, 0.03, 0.03, 0.0, 0.0, 0.0])

    def test_a_block_that_touches_the_span_is_inside(self) -> None:
        first, last = np.array([1, 51, 101]), np.array([50, 100, 150])
        allowed = allowance([deviation(from_step=100, end_step=101)], TRAIN, first, last, last * 1.0)
        assert allowed is not None
        assert allowed.low.tolist() == [0.0, -0.05, -0.05]

    def test_tokens_bound_a_span_as_steps_do(self) -> None:
        some = deviation(from_tokens=2 * TOKENS_PER_STEP, end_tokens=3 * TOKENS_PER_STEP, end_step=None)
        allowed = allowance([some], TRAIN, *at(1, 2, 3, 4))
        assert allowed is not None
        assert allowed.low.tolist() == [0.0, -0.05, -0.05, 0.0]

    def test_tasks_share_in_the_mean(self) -> None:
        some = Deviation("x", "evaluation", {"downstream/a/accuracy": 0.04, "downstream/mean/accuracy": 0.01})
        (mean,) = mean_budgets([some], ["downstream/a/accuracy", "downstream/b/accuracy"])
        assert mean.budgets == {"downstream/mean/accuracy": pytest.approx(0.03)}

    @given(
        gap=st.lists(st.floats(-1, 1), min_size=1, max_size=20),
        budgets=st.lists(st.floats(-0.5, 0.5).filter(lambda b: b != 0.0), min_size=1, max_size=4),
    )
    def test_what_is_left_is_between_nothing_and_the_gap(self, gap: list[float], budgets: list[float]) -> None:
        allowed = allowance([deviation(b) for b in budgets], TRAIN, *at(*range(1, len(gap) + 1)))
        assert allowed is not None
        values = np.array(gap)
        left = allowed.unexplained(values)
        assert (np.abs(left) <= np.abs(values)).all()
        assert (left * values >= 0.0).all(), "never on the other side"
        low, high = sum(b for b in budgets if b < 0), sum(b for b in budgets if b > 0)
        assert np.allclose(values - left, np.clip(values, low, high))

    @given(value=st.sampled_from([np.nan, np.inf, -np.inf]))
    def test_what_is_no_number_stays_so(self, value: float) -> None:
        allowed = allowance([deviation()], TRAIN, *at(1))
        assert allowed is not None
        assert not np.isfinite(allowed.unexplained(np.array([value]))).any()


class TestRules:
    def test_within_the_budget_the_drift_is_explained_and_the_answer_says_on_what_it_rests(self, sunk: RunView) -> None:
        assert answers(sunk)["train_drift"].state == "yes"
        said = answers(sunk, deviation(), deviation(metric=HELD))
        drift = said["train_drift"]
        assert drift.state == "no"
        assert drift.summary.startswith("Left out what the declared deviation “newer crawl” explains: Train loss is ")
        assert "It rests on that; without: Train loss has drifted below" in drift.summary
        measured = next(e for e in drift.evidence if e.name == "value without declared deviations")
        assert measured.value == pytest.approx(-0.04, abs=0.005)
        assert [e.name for e in drift.evidence if e.name == RESTS_ON] == [RESTS_ON]
        assert said["improvement"].state == "no"
        assert drift.value == pytest.approx(0.0, abs=0.005), "what is judged is what is left"
        judged = verdict([j for j in said.values() if j.rule != "data_order"])
        assert judged.state == "consistent"
        assert "rests on declared deviations: newer crawl (data): -0.05 of train/ce_loss" in judged.because

    def test_beyond_the_budget_it_is_a_drift_and_says_which_is_exceeded(self, sunk: RunView) -> None:
        drift = answers(sunk, deviation(-0.01))["train_drift"]
        assert drift.state == "yes"
        assert "beyond the budget of the declared deviation “newer crawl”." in drift.summary
        assert EXCEEDED in [e.name for e in drift.evidence]
        assert drift.value == pytest.approx(-0.03, abs=0.005)

    def test_an_expired_one_alarms_again_and_says_so(self, sunk: RunView) -> None:
        short = deviation(end_step=12_000)
        view = replace(sunk, deviations=(short,))
        looks = [11_500, 14_000]
        before, after = [next(j for j in said if j.rule == "train_drift") for said in judge_prefixes(view, looks)]
        assert before.state != "yes"
        assert after.state == "yes"
        assert after.since_step is not None
        assert 11_000 <= after.since_step[0] <= 12_500
        assert "Expired: the declared deviation “newer crawl”." in after.summary
        assert EXPIRED in [e.name for e in after.evidence]

    def test_the_wrong_side_and_another_metric_explain_nothing(self, sunk: RunView) -> None:
        bare = answers(sunk)
        for other in (deviation(+0.05), deviation(metric="downstream/arc_easy/accuracy")):
            drift = answers(sunk, other)["train_drift"]
            assert (drift.state, drift.value) == ("yes", bare["train_drift"].value)

    def test_two_that_add_up_explain_what_neither_does_alone(self, sunk: RunView) -> None:
        half = deviation(-0.012)
        assert answers(sunk, half)["train_drift"].state == "yes"
        assert answers(sunk, half, replace(half, text="other order"))["train_drift"].state == "no"

    def test_a_run_that_goes_back_to_the_reference_when_it_ends_is_no_drift(self) -> None:
        there_and_back = pair(4, steps=STEPS, train=lambda s: np.where((s > 1_000) & (s <= 12_000), -0.04, 0.0))
        some = deviation(from_step=1_000, end_step=12_000)
        for look in judge_prefixes(replace(there_and_back, deviations=(some,)), [6_000, 12_400, 16_000, STEPS]):
            assert next(j for j in look if j.rule == "train_drift").state != "yes"

    def test_a_held_out_budget_explains_a_regression(self) -> None:
        worse = pair(5, steps=STEPS, heldout=step_change(8_000, 0.03), train=step_change(8_000, 0.03))
        assert answers(worse)["heldout_regression"].state == "yes"
        said = answers(worse, deviation(+0.04, HELD), deviation(+0.04))
        assert said["heldout_regression"].state == "no"
        assert rest_on(said.values())

    def test_without_deviations_nothing_changes_to_the_last_bit(self, sunk: RunView) -> None:
        none = Deviation("x", "data", {"heldout/other/ce_loss": -0.1}, end_step=STEPS)
        assert [j.to_json() for j in answers(sunk, none).values()] == [j.to_json() for j in answers(sunk).values()]


@settings(max_examples=12, deadline=None)
@given(
    budget=st.floats(-0.06, 0.06).filter(lambda b: b != 0.0),
    end=st.integers(2_000, 6_000),
    cut=st.integers(3_000, 5_999),
)
def test_an_answer_rests_on_the_points_so_far_alone(budget: float, end: int, cut: int) -> None:
    whole = pair(7, steps=6_000, train=step_change(3_000, -0.05), deviations=(deviation(budget, end_step=end),))
    longer = prefix(whole, cut)
    rebuilt = replace(whole, metrics={
        name: Series(s.steps[s.steps <= cut], s.tokens[s.steps <= cut], s.values[s.steps <= cut])
        for name, s in whole.metrics.items()
    })  # fmt: skip
    assert [j.to_json() for j in evaluate(longer)] == [j.to_json() for j in evaluate(rebuilt)]
    (replayed,) = judge_prefixes(whole, [cut])
    assert [j.to_json() for j in replayed] == [j.to_json() for j in evaluate(longer)]


@pytest.mark.parametrize(("step", "state"), [(9, "not begun"), (10, "in force"), (20, "in force"), (21, "ended")])
def test_where_it_stands(step: int, state: str) -> None:
    assert standing(deviation(from_step=10, end_step=20), step, float("nan")) == state
