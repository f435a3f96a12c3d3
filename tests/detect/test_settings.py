"""What was set for a rule moves its limit and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.detect.cache import LevelCache
from service.detect.engine import evaluate
from service.detect.gaps import tolerance_of
from service.detect.inputs import RuleSetting, RunView, Series, Tolerance
from service.detect.judgement import Judgement
from service.detect.settings import UNITS, with_tolerances

from .scenarios import HELD, TRAIN, lab, pair, pool_loader, readings, step_change

RATE = "optim/learning_rate"


def setting(**values: Any) -> RuleSetting:
    return RuleSetting(tolerance_source="set by Ann", minimum_source="set by Ann", **values)


def answers(view: RunView, **settings: RuleSetting) -> dict[str, Judgement]:
    return {j.rule: j for j in evaluate(replace(view, settings=settings))}


def test_a_train_tolerance_moves_the_limit_of_all_that_rest_on_it() -> None:
    view = pair(1, steps=12_000, train=step_change(6_000, -0.04))
    shipped = answers(view)
    wide = answers(view, train_drift=setting(tolerance=0.08))
    assert (shipped["train_drift"].state, wide["train_drift"].state) == ("yes", "no")
    assert wide["train_drift"].limit == 0.08
    assert wide["train_drift"].limit_source == "set by Ann; shipped: 0.015, assumed"
    assert wide["train_only_drift"].limit == 0.08
    narrow = answers(pair(1, steps=12_000, train=step_change(6_000, -0.013)), train_drift=setting(tolerance=0.004))
    assert narrow["train_drift"].state == "yes"
    assert narrow["train_drift"].n == shipped["train_drift"].n, "the same blocks"


def test_a_tolerance_measured_on_siblings_stays_of_that_kind() -> None:
    measured = Tolerance(0.1, "3 healthy runs", 3, 0.115, 50, 0.06)
    view, cache = lab(1, double=False, tolerance=measured), LevelCache()
    shipped = tolerance_of(view, TRAIN, cache)
    moved = with_tolerances(replace(view, settings={"train_drift": setting(tolerance=2 * shipped.value)}), cache)
    again = with_tolerances(replace(view, settings={"train_drift": setting(tolerance=2 * shipped.value)}), cache)
    made = moved.tolerances[TRAIN]
    assert (made.runs, made.noise_sd, made.window_steps) == (shipped.runs, shipped.noise_sd, shipped.window_steps)
    assert made.change == pytest.approx(0.12), "in proportion"
    assert again.tolerances[TRAIN] is made, "caches know a tolerance by its identity"


def test_the_held_out_tolerance_is_its_own() -> None:
    view = pair(2, steps=12_000, heldout=step_change(6_000, 0.03), train=step_change(6_000, 0.03))
    assert answers(view)["heldout_regression"].state == "yes"
    said = answers(view, heldout_regression=setting(tolerance=0.05))
    assert said["heldout_regression"].state == "no"
    assert said["train_drift"].state == "yes"
    assert HELD in with_tolerances(
        replace(view, settings={"heldout_regression": setting(tolerance=0.05)}), LevelCache()
    ).tolerances  # fmt: skip


def test_shares_have_limits_too() -> None:
    view = lab(1, double=True)
    assert answers(view)["repeated_rows"].state == "yes"
    loader = readings(pool_loader(3200, 4, 2, 400, 1, double=False))
    few = replace(view, rows=loader)
    assert answers(few)["repeated_rows"].limit == pytest.approx(1e-4)
    assert answers(few, repeated_rows=setting(tolerance=0.05))["repeated_rows"].limit == 0.05
    assert answers(view, repeated_rows=setting(tolerance=0.1))["repeated_rows"].state == "yes"


def test_a_schedule_that_is_off_by_a_known_amount() -> None:
    view = pair(3, steps=4_000)
    train = view.metrics[TRAIN]
    mine = Series(train.steps, train.tokens, 0.95e-4 + 0.0 * train.values)
    theirs = Series(train.steps, train.tokens, 1e-4 + 0.0 * train.values)
    view = replace(view, metrics={**view.metrics, RATE: mine}, reference={**view.reference, RATE: theirs})
    said = answers(view)["schedule_mismatch"]
    assert (said.state, "off by more than 2 %" in said.summary) == ("yes", True)
    wide = answers(view, schedule_mismatch=setting(tolerance=0.1))["schedule_mismatch"]
    assert (wide.state, wide.limit, wide.limit_source) == ("no", 0.1, "set by Ann; shipped: 0.02, 2 %, either way")


@pytest.mark.parametrize("minimum", [1, 10**9])
def test_minimum_evidence_holds_back_an_answer_and_says_what_it_would_be(minimum: int) -> None:
    view = pair(1, steps=12_000, train=step_change(6_000, -0.04))
    said = answers(view, train_drift=setting(minimum=minimum))["train_drift"]
    bare = answers(view)["train_drift"]
    assert (said == bare) is (minimum == 1)
    if minimum > 1:
        assert (said.state, said.since_step, said.value) == ("cannot tell", None, bare.value)
        assert said.summary.endswith(f"by them the answer would be yes: {bare.summary}")


def test_no_setting_makes_a_rule_raise() -> None:
    empty = RunView({}, {}, {}, ())
    for view in (empty, pair(1, steps=600)):
        every = {rule: setting(tolerance=0.01, minimum=5) for rule in UNITS}
        assert len(evaluate(replace(view, settings=every))) == len(evaluate(view))
        off = {rule: RuleSetting(off="set by Ann") for rule in UNITS}
        said = {j.rule: j for j in evaluate(replace(view, settings=off))}
        assert all(said[rule].summary == "Not judged: turned off, set by Ann." for rule in UNITS)
