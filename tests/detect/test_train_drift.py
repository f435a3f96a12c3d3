"""Drift of the train loss: simulated runs at 7B scale, small hand-written ones, and real logs."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.engine import evaluate
from service.detect.inputs import RunView, Segment, Series, Tolerance
from service.detect.judgement import Judgement
from service.detect.replay import judge_prefixes

from .golden import load
from .scenarios import TRAIN, ar1, curve, judged, pair, ramp, series, step_change, white


def drift(view: RunView) -> Judgement:
    return judged(view, "train_drift")["train_drift"]


@pytest.mark.parametrize("kind", ["white", "ar1", "t3"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_healthy_runs_are_within_tolerance(kind, seed):
    said = drift(pair(seed, kind=kind))
    assert said.state == "no"
    assert said.limit == 0.015
    assert said.interval[0] < said.value < said.interval[1]


@pytest.mark.parametrize("seed", range(20, 26))
def test_wander_of_a_quarter_of_the_tolerance_is_healthy(seed):
    slow = np.repeat(ar1(80, 0.015 / 3.75, 0.85, np.random.default_rng(seed)), 500)
    said = [j[0].state for j in judge_prefixes(pair(seed, train=lambda s: slow[s - 1]), range(5_000, 40_001, 5_000))]
    assert set(said) == {"no"}


@pytest.mark.parametrize(("size", "side"), [(-0.03, "below"), (0.03, "above"), (-0.25, "below")])
def test_a_step_is_found_with_its_side_size_and_onset(size, side):
    said = drift(pair(4, train=step_change(20_250, size)))
    assert said.state == "yes"
    assert f"drifted {side} olmo3-7b" in said.summary
    assert said.value == pytest.approx(size, abs=0.006)
    assert said.since_step[0] <= 20_250 <= said.since_step[1] + 500
    assert said.since_step[1] - said.since_step[0] <= 1500
    assert said.since_tokens == pytest.approx([s * 4_194_304.0 for s in said.since_step])


def test_a_ramp_is_found_early():
    view = pair(5, train=ramp(10_000, 34_000, -0.25))
    n = 10_000 + int(24_000 * 0.045 / 0.25)
    cut = {
        m: Series(s.steps[s.steps <= n], s.tokens[s.steps <= n], s.values[s.steps <= n])
        for m, s in view.metrics.items()
    }
    assert drift(replace(view, metrics=cut)).state == "yes"


def test_a_gap_that_closes_again_is_no_drift_any_more():
    assert drift(pair(6, train=lambda s: np.where((s > 10_000) & (s < 20_000), -0.05, 0.0))).state == "no"


def test_missing_data_spikes_and_non_finite_values_do_not_matter():
    view = pair(7, missing=0.5)
    train = view.metrics[TRAIN]
    values = train.values.copy()
    values[::97] += 5.0
    values[3::89] = np.nan
    values[5::101] = np.inf
    spoiled = replace(view, metrics={**view.metrics, TRAIN: Series(train.steps, train.tokens, values)})
    assert drift(spoiled).state == "no"


def test_a_reference_too_thin_for_the_tolerance_cannot_tell_and_says_what_would_show():
    view = pair(8, reference_at=np.arange(500, 40_001, 4_000))
    said = drift(view)
    assert said.state == "cannot tell"
    assert "smallest train gap that would show" in said.summary


def test_without_reference_or_common_tokens_it_cannot_tell():
    view = pair(9)
    assert drift(replace(view, reference={})).state == "cannot tell"
    far = {m: Series(s.steps, s.tokens + 1e15, s.values) for m, s in view.metrics.items()}
    said = drift(replace(view, metrics=far))
    assert (said.state, "token range" in said.summary) == ("cannot tell", True)
    assert drift(replace(view, metrics={})).summary == "Cannot tell: the run has no train loss."


def test_unequal_batch_sizes_are_compared_at_equal_tokens():
    rng = np.random.default_rng(10)
    at = np.arange(1, 40_001)
    reference = series(at, curve(at) + white(40_000, 0.0255, rng))
    big = np.arange(1, 20_001)
    run = series(big, curve(big * 2) + white(20_000, 0.018, rng), 2 * 4_194_304.0)
    view = RunView(
        {TRAIN: run}, {TRAIN: reference}, {TRAIN: Tolerance(0.015, "assumed", 0, 0.0255, 250)}, [Segment(0, 0.0, 1)]
    )
    assert drift(view).state == "no"
    assert drift(replace(view, metrics={TRAIN: series(big, run.values - 0.04, 2 * 4_194_304.0)})).state == "yes"


def test_a_drift_from_the_run_s_own_early_offset_is_seen_inside_the_tolerance():
    view = pair(11, train=lambda s: np.where(s > 24_000, -0.012, 0.012))
    tolerance = replace(view.tolerances[TRAIN], change=0.015)
    said = drift(replace(view, tolerances={TRAIN: tolerance}))
    assert said.state == "yes"
    assert "own early offset" in said.summary
    assert said.value == pytest.approx(-0.024, abs=0.006)


def test_adding_a_constant_to_run_and_reference_changes_nothing():
    view = pair(12, train=step_change(20_000, -0.05))
    lifted = replace(
        view,
        metrics={m: Series(s.steps, s.tokens, s.values + 3.0) for m, s in view.metrics.items()},
        reference={m: Series(s.steps, s.tokens, s.values + 3.0) for m, s in view.reference.items()},
    )
    before, after = evaluate(view), evaluate(lifted)
    assert [j.state for j in before] == [j.state for j in after]
    assert [j.since_step for j in before] == [j.since_step for j in after]
    assert before[0].value == pytest.approx(after[0].value, abs=1e-9)


def test_the_shipped_reference_shows_a_gap_of_two_tolerances_late_in_the_run():
    reference = load("olmo3_7b/stage1", 4_194_304.0)
    at = np.arange(20_000, 1_300_001, 50)
    rng = np.random.default_rng(13)
    known = reference[TRAIN]
    fitted = np.polynomial.Polynomial.fit(np.log(known.steps), known.values, 12)
    healthy = series(at, fitted(np.log(at)) + white(len(at), 0.0255, rng))
    tolerance = {TRAIN: Tolerance(0.015, "assumed", 0, 0.0255, 500)}
    view = RunView({TRAIN: healthy}, reference, tolerance, [Segment(0, 0.0, 1)], heldout="heldout/c4_en/ce_loss")
    before = drift(view)
    assert before.state == "no"
    sunk = series(at, healthy.values + np.where(at > 900_000, -0.05, 0.0))
    said = drift(replace(view, metrics={TRAIN: sunk}))
    assert said.state == "yes"
    assert said.value - before.value == pytest.approx(-0.05, abs=0.01)
    assert said.interval[0] < before.value - 0.05 < said.interval[1]
