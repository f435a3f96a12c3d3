"""Data order identity by the losses: real reruns, real trainings of the lab's model, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from service.detect import order
from service.detect.engine import evaluate, verdict
from service.detect.inputs import Floats, RunView, Segment, Series
from service.detect.judgement import Judgement
from service.detect.replay import judge_prefixes, prefix

from .scenarios import TRAIN, curve, series

SIGNATURE = Path(__file__).parents[1] / "golden" / "batch_signature"
LAB = Path(__file__).parents[2] / "service" / "references" / "bundles" / "lab"
TABLE = pd.read_csv(SIGNATURE / "reruns.csv")
STEPS = TABLE["step"].to_numpy("int64")
RUNS = TABLE.drop(columns="step").to_numpy("float64").T


def lab(path: Path) -> dict[str, Series]:
    table = pd.read_csv(path)
    if "metric" not in table:
        table = table.melt("step", var_name="metric")
    return {
        str(metric): series(part["step"].to_numpy(), part["value"].to_numpy(), 1024.0)
        for metric, part in table.sort_values("step").groupby("metric")
    }


LAB_REFERENCE = lab(LAB / "series" / "stage1.csv")


def beside(run: Floats, reference: Floats = RUNS[1], restarts: tuple[int, ...] = (), **more: object) -> RunView:
    view = RunView(
        {TRAIN: series(STEPS[: len(run)], run)},
        {TRAIN: series(STEPS, reference)},
        {},
        [Segment(s, float(i), 1) for i, s in enumerate((0, *restarts))],
        reference_name="rerun",
    )
    return replace(view, **more)  # type: ignore[arg-type]


def said(view: RunView) -> Judgement:
    return next(j for j in evaluate(view) if j.rule == "data_order")


def evidence(judgement: Judgement, name: str) -> object:
    return next(e.value for e in judgement.evidence if e.name == name)


def smooth(run: Floats) -> Floats:
    return np.convolve(np.pad(run, 12, mode="reflect"), np.ones(25) / 25.0, "valid")


def leaving(at: int, by: int, run: int = 0) -> Floats:
    """A rerun that from step `at` + 1 on reads its batches `by` steps late."""
    level = smooth(RUNS[run])
    left = RUNS[run].copy()
    left[at:] = (level + np.roll(RUNS[run] - level, by))[at:]
    return left


@pytest.mark.parametrize("run", range(6))
def test_reruns_read_the_same_batches(run):
    for other in set(range(6)) - {run}:
        found = order.find(beside(RUNS[run], RUNS[other]))
        assert (found.answer, found.pairs) == ("same", 1530)
        assert found.stretches[-1].r > 0.98


def test_the_same_order_is_no_fault_and_says_so():
    judgement = said(beside(RUNS[0], same_order_declared=True))
    assert judgement.state == "no"
    assert evidence(judgement, "order") == "same"
    assert "step by step since step 1" in judgement.summary
    assert judgement.value > 0.98


def test_shuffled_batches_are_another_order():
    level = smooth(RUNS[0])
    mixed = level + np.random.default_rng(1).permutation(RUNS[0] - level)
    judgement = said(beside(mixed))
    assert judgement.state == "no", "another order is not by itself a fault"
    assert evidence(judgement, "order") == "different"
    declared = said(beside(mixed, same_order_declared=True))
    assert declared.state == "yes"
    assert declared.causes[-1].name == "another seed, mix or sharding of the data"


@pytest.mark.parametrize("at", [70, 400, 900, 1450])
def test_where_the_order_is_left_and_what_is_read_instead(at):
    judgement = said(beside(leaving(at, 37), restarts=(at,), same_order_declared=True))
    assert judgement.state == "yes"
    assert evidence(judgement, "order") == "departs"
    low, high = judgement.since_step
    assert at + 1 - 32 <= low <= at + 1 <= high <= at + 1 + 32
    assert evidence(judgement, "shift") == -37
    assert judgement.causes[0].name == "data behind the weights"
    assert judgement.causes[0].weight == "shown"
    assert "37 steps earlier" in judgement.summary


def test_a_departure_is_said_within_64_steps_and_never_before():
    view = beside(leaving(600, 50), restarts=(600,), same_order_declared=True)
    looks = list(range(560, 700, 4))
    states = [next(j for j in all_ if j.rule == "data_order").state for all_ in judge_prefixes(view, looks)]
    first = looks[states.index("yes")]
    assert 600 < first <= 664
    assert set(states[states.index("yes") :]) == {"yes"}
    assert "yes" not in states[: states.index("yes")]


def test_a_run_that_comes_back_to_the_order_is_the_same_again():
    left = leaving(500, 37)
    left[700:] = RUNS[0][700:]
    found = order.find(beside(left))
    assert found.answer == "same"
    assert [s.same for s in found.stretches] == [True, False, True]
    assert found.stretches[1].first == pytest.approx(501, abs=10)
    assert found.stretches[2].first == pytest.approx(701, abs=10)


def test_lab_siblings_read_other_orders():
    for seed in (1, 2, 3):
        view = RunView(lab(LAB / "siblings" / f"order-seed-{seed}.csv"), LAB_REFERENCE, {}, [Segment(0, 0.0, 4)])
        found = order.find(view)
        assert found.answer == "different"
        assert [c[0] for c in found.channels] == [TRAIN, "optim/grad_norm"]
        assert all(abs(r) < 0.3 for _, r, _ in found.channels)


def test_a_real_lab_run_that_leaves_the_order_at_step_151():
    view = RunView(lab(SIGNATURE / "lab_departs.csv"), LAB_REFERENCE, {}, [Segment(0, 0.0, 4)])
    found = order.find(view)
    assert found.answer == "departs"
    assert found.since[0] <= 151 <= found.since[1]
    assert found.stretches[0].r > 0.98
    assert order.find(prefix(view, 150)).answer == "same"


def test_tokens_place_the_pairs_not_steps():
    half = Series(STEPS * 2, STEPS * 4_194_304.0, RUNS[0])  # half the batch size by its count, the same tokens
    view = replace(beside(RUNS[0]), metrics={TRAIN: half})
    assert order.find(view).answer == "same"


def test_a_thinned_reference_cannot_tell_and_says_what_is_missing():
    thin = replace(beside(RUNS[0]), reference={TRAIN: series(STEPS[::10], RUNS[1][::10])})
    judgement = said(thin)
    assert judgement.state == "cannot tell"
    assert "151 points where the run has 1,500" in judgement.summary
    assert "single steps are needed" in judgement.summary


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metrics": {}}, "both need a train loss"),
        ({"reference": {}}, "both need a train loss"),
        ({"metrics": {TRAIN: series(STEPS[:10], RUNS[0][:10])}}, "10 of 16"),
        ({"metrics": {TRAIN: series([5], [3.0])}}, "no even grid"),
        ({"metrics": {TRAIN: series(STEPS, np.full(1530, np.nan))}}, "no even grid"),
    ],
)
def test_too_little_cannot_tell(change, why):
    judgement = said(replace(beside(RUNS[0]), **change))
    assert judgement.state == "cannot tell"
    assert why in judgement.summary


def test_missing_and_non_finite_points_do_not_matter():
    rng = np.random.default_rng(3)
    run = RUNS[0].copy()
    run[rng.integers(0, 1530, 200)] = np.nan
    run[rng.integers(0, 1530, 5)] = np.inf
    keep = rng.random(1530) > 0.2
    view = replace(beside(run), metrics={TRAIN: series(STEPS[keep], run[keep])})
    assert order.find(view).answer == "same"


def test_the_answer_depends_on_the_points_up_to_the_step_only():
    view = beside(leaving(500, 37), restarts=(500,), same_order_declared=True)
    for step in (300, 520, 540, 900):
        cut = RunView({TRAIN: series(STEPS[:step], view.metrics[TRAIN].values[:step])}, view.reference, {},
                      [s for s in view.segments if s.start_step < step], reference_name="rerun",
                      same_order_declared=True)  # fmt: skip
        assert said(cut) == said(prefix(view, step))


def test_a_verdict_stands_on_it():
    rng = np.random.default_rng(4)
    steps = np.arange(1, 3001)
    run = series(steps, curve(steps) + rng.normal(0.0, 0.0255, 3000))
    other = series(steps, curve(steps) + rng.normal(0.0, 0.0255, 3000))
    view = RunView({TRAIN: run}, {TRAIN: other}, {}, [Segment(0, 0.0, 1)], same_order_declared=True)
    assert verdict(evaluate(view)).state == "drifting"
