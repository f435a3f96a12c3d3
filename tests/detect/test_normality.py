"""Is this gap normal: percentiles in judgements, and where a tolerance comes from."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.bank import scale_of
from service.detect.cache import LevelCache
from service.detect.engine import evaluate
from service.detect.facts import Recipe
from service.detect.gaps import tolerance_of
from service.detect.heldout_gap import heldout_tolerance
from service.detect.inputs import RuleSetting, RunView, Tolerance
from service.detect.normality import HELDOUT_PERCENTILE, TRAIN_PERCENTILE

from .scenarios import HELD, TRAIN, ar1, curve, pair, series, step_change, white

SMALL = Recipe({"model.parameters": 124_000_000})


def evidence(view: RunView, rule: str, name: str):
    said = next(j for j in evaluate(view) if j.rule == rule)
    return next((e for e in said.evidence if e.name == name), None)


def test_a_gap_is_set_beside_healthy_pairs_with_their_number_and_names():
    view = pair(1, reference_name="olmo3-7b")
    quiet, drifted = (
        evidence(v, "train_drift", TRAIN_PERCENTILE)
        for v in (view, pair(1, reference_name="olmo3-7b", train=step_change(20_000, -0.2)))
    )
    assert quiet.value < 50.0 < 99.0 < drifted.value <= 100.0
    assert quiet.unit == "%"
    assert "agndm_124m" in quiet.why
    assert "MIT" in quiet.why
    assert "none is known of this scale" in quiet.why


def test_heldout_is_set_beside_them_too():
    view = pair(2, recipe=SMALL, heldout=step_change(20_000, 0.05))
    found = evidence(view, "heldout_regression", HELDOUT_PERCENTILE)
    assert found.value > 99.0
    assert "unettweaks_124m" in found.why


def test_a_run_without_a_gap_has_no_percentile():
    view = pair(3)
    assert evidence(replace(view, reference={}), "train_drift", TRAIN_PERCENTILE) is None


@pytest.mark.parametrize(
    ("name", "entries", "parameters"),
    [
        ("olmo3-7b", {}, 7e9), ("pythia-410m", {}, 410e6), ("qwen-1.5B-base", {}, 1.5e9), ("lab", {}, None),
        ("run-a7b2c", {}, None), ("olmo3-7b", {"model.parameters": 7_298_011_136}, 7_298_011_136),
    ],
)  # fmt: skip
def test_scale_is_by_recipe_or_by_name(name, entries, parameters):
    found = scale_of(name, entries, series(range(1, 100), np.zeros(99)))
    assert found.parameters == parameters
    assert found.tokens_per_step == 4_194_304.0


def wandering(seed: int) -> RunView:
    rng = np.random.default_rng(seed)
    at = np.arange(1, 60_001)
    slow = np.repeat(ar1(120, 0.02, 0.85, rng), 500)
    reference = series(at, curve(at) + white(60_000, 0.0255, rng) + slow)
    return RunView({TRAIN: reference}, {TRAIN: reference}, {}, ())


def healthy(seed: int) -> dict[str, object]:
    return dict(pair(seed).metrics)


def test_the_tolerance_s_source_is_in_this_order_and_said():
    """Siblings, the reference's own wander, the bank, the default."""
    view = wandering(1)
    siblings = [healthy(s) for s in (11, 12, 13)]
    assert "healthy runs" in tolerance_of(replace(view, siblings=siblings), TRAIN, LevelCache()).source
    own = tolerance_of(view, TRAIN, LevelCache())
    assert "own slow wander" in own.source
    assert own.value > 0.05
    plain = replace(pair(4), tolerances={}, recipe=SMALL)
    assert "no sibling at this scale" in tolerance_of(plain, TRAIN, LevelCache()).source
    at = plain.reference[TRAIN]
    small = replace(at, tokens=at.steps * 524_288.0)
    banked = replace(plain, reference={**plain.reference, TRAIN: small}, same_order_declared=True)
    by_bank = tolerance_of(banked, TRAIN, LevelCache())
    assert "bank of healthy pairs" in by_bank.source
    assert by_bank.runs >= 3
    assert 0.01 < by_bank.value < 0.025


def test_siblings_go_before_a_declared_assumption_but_not_before_what_people_set():
    view = replace(pair(5), siblings=[healthy(s) for s in (14, 15, 16)])
    assert "healthy runs" in tolerance_of(view, TRAIN, LevelCache()).source
    people = replace(view, settings={"train_drift": RuleSetting(tolerance=0.03, tolerance_source="set by ada")})
    said = next(j for j in evaluate(people) if j.rule == "train_drift")
    assert said.limit == 0.03
    measured = Tolerance(0.02, "3.5 sd of 3 healthy runs", 3, 0.0255, 500)
    declared = replace(view, tolerances={TRAIN: measured})
    assert tolerance_of(declared, TRAIN, LevelCache()) is measured


def test_heldout_s_tolerance_is_by_the_bank_at_a_scale_it_knows():
    view = pair(6)
    assert "no sibling at this scale" in heldout_tolerance(view, HELD, None, LevelCache()).source
    small = {k: replace(s, tokens=s.steps * 524_288.0) for k, s in view.reference.items()}
    found = heldout_tolerance(replace(view, reference=small, recipe=SMALL), HELD, None, LevelCache())
    assert "bank of healthy pairs" in found.source
    assert found.runs > 50
    assert 0.005 < found.value < 0.03
