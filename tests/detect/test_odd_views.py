"""No rule raises, whatever comes: steps up to 2^53, tokens that are NaN, negative or stand still, starts in any order
and at one step, metrics of one point, values at the edge of what a float holds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.compare.gap import change
from service.compare.noise import default_window
from service.compare.wander import own_wander
from service.detect.engine import RULES, evaluate, verdict
from service.detect.facts import Arrivals, Happening, HeldoutHits, Items, Knot, Loss, Recipe
from service.detect.inputs import DeclaredData, Deviation, RowReadings, RuleSetting, RunView, Segment, Series, Tolerance
from service.judgements.bodies import to_body

from .scenarios import HELD, TRAIN, pair

SCORED = "train/scored_tokens"
NAMES = [
    TRAIN, HELD, "heldout/x/ce_loss", "optim/grad_norm", "optim/learning_rate", "downstream/a/accuracy",
    "downstream/b/accuracy", "parity/kl", SCORED, "throughput/tokens_per_second_per_device",
]  # fmt: skip
FAR = 2**53


def _steps(rng: np.random.Generator) -> np.ndarray:
    n = int(rng.choice([0, 1, 2, 3, 8, 30, 150, 700]))
    every_step = np.arange(1, n + 1)
    steps = [
        every_step,
        every_step * int(rng.choice([10, 1000])),
        np.cumsum(rng.integers(1, 40, n)),
        np.cumsum(np.where(rng.random(n) < 0.02, 10**9, 1)),
        np.sort(rng.choice(FAR, n)),
        FAR - n + every_step,
    ][rng.integers(6)]
    return np.unique(steps.astype(np.int64))


def _series(rng: np.random.Generator) -> Series:
    steps = _steps(rng)
    n = len(steps)
    tokens = [
        steps * 4e6,
        steps * 0.0,
        steps * -1e3,
        steps * 1e290,
        np.full(n, np.nan),
        np.where(rng.random(n) < 0.1, rng.choice([np.nan, np.inf]), steps * 1e3),
    ][rng.integers(6)]
    values = 2.0 + 0.5 / (np.arange(n) / 100.0 + 1.0) + rng.normal(0.0, 0.02, n)
    values = [
        values,
        np.full(n, 2.0),
        values * 1e300,
        values * 5e-324,
        np.full(n, np.nan),
        rng.standard_cauchy(n),
        np.where(rng.random(n) < 0.1, rng.choice([np.nan, np.inf, -np.inf], n), values),
    ][rng.integers(7)]
    return Series(steps, tokens.astype(np.float64), values)


def _rows(rng: np.random.Generator, steps: np.ndarray) -> RowReadings:
    at = np.sort(rng.choice(steps, int(rng.choice([1, 10, 200])))) if len(steps) else np.zeros(0, np.int64)
    seen = np.unique(at) if rng.random() < 0.7 else np.zeros(0, np.int64)
    hashes = rng.integers(0, int(rng.choice([2, 50, 2**63 - 1])), len(at)).astype(np.uint64)
    hosts, sample = rng.integers(-1, 3, len(at)), int(rng.choice([1, 4, 1024]))
    return RowReadings(at, hosts, hashes, sample, seen, rng.integers(0, 9, len(seen)))


def _segment(rng: np.random.Generator) -> Segment:
    rates = tuple((int(rng.choice([0, 1, 7])), int(rng.choice([0, 4]))) for _ in range(rng.integers(3)))
    config: dict[str, Any] = {"lr": {"peak": float(rng.choice([1.0, np.nan]))}, "batch": [1, {"rows": 2}]}
    start, hosts = int(rng.choice([0, 0, 5, 5, 500, FAR])), int(rng.choice([0, 1, 64]))
    return Segment(start, float(rng.choice([0.0, 1.0, 1.0, 1e12])), hosts, config, {"jax": 1}, {}, rates)


def odd_view(seed: int) -> RunView:
    rng = np.random.default_rng(seed)

    def step() -> int:
        return int(rng.choice([0, 1, 5, 100, FAR]))

    def sometimes(value: Any, otherwise: Any) -> Any:
        return value if rng.random() < 0.5 else otherwise

    def readings() -> RowReadings:
        return _rows(rng, metrics[TRAIN].steps if TRAIN in metrics else np.arange(10))

    def items() -> dict[str, list[Items]]:
        return {"a": [Items(step(), rng.random(int(rng.choice([0, 1, 9]))) < 0.5) for _ in range(rng.integers(3))]}

    metrics = {name: _series(rng) for name in NAMES if rng.random() < 0.7}
    reference = {name: _series(rng) for name in NAMES if rng.random() < 0.4} | {
        name: replace(s, values=s.values + rng.normal(0.0, 0.01, len(s)))
        for name, s in metrics.items()
        if rng.random() < 0.5
    }
    segments = [_segment(rng) for _ in range(rng.integers(5))]
    hits = readings()
    deviations = [
        Deviation(
            "known", "data", {TRAIN: float(rng.choice([0.1, -0.1, 0.0])), HELD: 0.1}, step(),
            sometimes(None, 5.0), sometimes(None, step()), sometimes(None, 1e9),
        )
        for _ in range(rng.integers(3))
    ]  # fmt: skip
    value, noise = float(rng.choice([0.0, 0.01, np.nan, -1.0, 1e-300])), sometimes(None, float(rng.choice([0.0, 0.02])))
    recipe = Recipe(
        {"lr.peak": 1.0}, Loss("words", z_loss=sometimes(None, True), scored_share=sometimes(None, 1e-300)),
        {HELD: "a"}, (Knot(float(rng.choice([0.0, 1e6])), "a place"),),
    )  # fmt: skip
    return RunView(
        metrics, reference, {name: Tolerance(value, "x", int(rng.integers(3)), noise) for name in (TRAIN, HELD)},
        sometimes(sorted(segments, key=lambda s: s.start_step), segments),
        heldout=sometimes("", HELD),
        siblings=sometimes([], [reference, metrics]),
        rows=sometimes(None, readings()), windows=sometimes(None, readings()),
        expected_rows=sometimes(None, readings()),
        data=sometimes(None, DeclaredData(int(rng.choice([1, 20, FAR])), float(rng.choice([1e-300, 2.5, 1e300])), 3)),
        schedule=sometimes(None, _series(rng)), tasks={"a": int(rng.choice([0, 9])), "b": 9},
        same_order_declared=sometimes(True, False),
        settings=sometimes({}, {r.name: RuleSetting(sometimes(None, 1e-9), "set", 5, "set") for r in RULES}),
        deviations=deviations,
        arrivals=sometimes(None, Arrivals(step(), 0.0, float(rng.choice([0.0, -5.0])), np.zeros(rng.integers(40)))),
        happenings=[Happening(step(), str(rng.choice(["data", "code", "checkpoint"])), "new") for _ in range(2)],
        eval_sets=sometimes({}, {name: [(step(), str(rng.choice(["a", "b"])))] * 2 for name in NAMES[:6]}),
        items=items(), reference_items=items(),
        heldout_hits=sometimes(
            None, {"c4": HeldoutHits(hits.steps, hits.hashes, int(rng.integers(3)), hits.seen_steps, hits.seen_rows)}
        ),
        recipe=sometimes(Recipe(), recipe),
    )  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_no_rule_raises_on_an_odd_view_and_each_answer_is_json(seed: int) -> None:
    said = evaluate(odd_view(seed))
    assert [judgement.rule for judgement in said] == [rule.name for rule in RULES]
    assert {judgement.state for judgement in said} <= {"yes", "no", "cannot tell"}
    json.dumps([to_body(judgement) for judgement in said], allow_nan=False)
    assert verdict(said).because


def test_a_reference_with_one_step_far_away_needs_no_memory_for_what_lies_between() -> None:
    rng = np.random.default_rng(1)
    steps = np.append(np.arange(1, 20_001), FAR)
    values = 2.0 + rng.normal(0.0, 0.02, len(steps))
    assert own_wander(steps, values, 50, 0.02) is None  # all the others lie within its first tenth
    view = pair(1, steps=2_000, tolerances={})
    train = view.reference[TRAIN]
    far = Series(np.append(train.steps, FAR), np.append(train.tokens, FAR * 4e6), np.append(train.values, 2.0))
    assert len(evaluate(replace(view, reference={**view.reference, TRAIN: far}))) == len(RULES)


def test_the_wander_of_a_series_with_holes_is_that_of_the_blocks_that_are_there() -> None:
    rng = np.random.default_rng(2)
    steps = np.arange(1, 40_001)
    values = 2.0 + rng.normal(0.0, 0.02, len(steps)) + 0.01 * np.sin(steps / 700.0)
    whole = own_wander(steps, values, 50, 0.02)
    there = (steps < 20_001) | (steps > 24_000)
    holed = own_wander(steps[there], values[there], 50, 0.02)
    assert whole is not None
    assert holed == pytest.approx(whole, rel=0.15)


def test_noise_too_large_to_be_squared_is_an_infinite_error() -> None:
    assert change(np.array([1.0]), np.array([2.0]), 1e200).se == np.inf
    assert change(np.array([]), np.array([2.0]), 0.1, assumed_sd=1e200).se == np.inf
    assert default_window(1e300, 0.015, 1_000_000) == 500


def test_a_change_to_nothing_finite_is_no_number() -> None:
    found = change(np.array([1.0]), np.array([np.nan]), 0.1)
    assert np.isnan(found.value)
    assert (found.se, found.before, found.after) == (np.inf, 1, 0)


def test_a_reference_that_scores_no_tokens_says_nothing_of_the_share() -> None:
    view = pair(3, steps=600)
    at = view.metrics[TRAIN]
    own, theirs = (Series(at.steps, at.tokens, np.full(len(at), v)) for v in (4e6, 5e-324))
    view = replace(view, metrics={**view.metrics, SCORED: own}, reference={**view.reference, SCORED: theirs})
    (said,) = (j for j in evaluate(view) if j.rule == "definition")
    assert "share of scored tokens" not in [item.name for item in said.evidence]
