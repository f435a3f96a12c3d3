"""Placing a run beside its reference on the token axis."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compare.align import align, kind_of, level
from service.detect.inputs import Series


def series(tokens, values, per_step=1.0):
    tokens = np.asarray(tokens, float)
    return Series((tokens / per_step).astype(np.int64), tokens, np.asarray(values, float))


def test_evaluations_are_interpolated_between_the_reference_s_points_and_never_outside():
    reference = level(series([0, 100, 200], [3.0, 2.0, 1.0]), "evaluation")
    placed = align(series([-50, 0, 50, 100, 150, 200, 201], np.ones(7)), reference)
    assert placed.tokens.tolist() == [0, 50, 100, 150, 200]
    assert placed.reference.tolist() == [3.0, 2.5, 2.0, 1.5, 1.0]
    assert placed.paired.tolist() == [True, False, True, False, True]


def test_interpolation_follows_a_curve_that_is_straight_in_log_tokens():
    tokens = np.array([10_000.0, 20_000.0, 40_000.0])
    reference = level(series(tokens, -0.2 * np.log(tokens)), "evaluation")
    placed = align(series([14_000, 30_000], [0, 0]), reference)
    assert placed.reference == pytest.approx(-0.2 * np.log([14_000, 30_000]), abs=1e-12)


def test_a_dense_reference_is_compared_pair_by_pair_so_shared_noise_cancels():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.1, 1000)
    at = np.arange(1, 1001)
    placed = align(series(at, 2 + noise - 0.01), level(series(at, 2 + noise), "noisy"))
    assert placed.paired.all()
    assert placed.gap == pytest.approx(np.full(1000, -0.01))
    assert (placed.reference_se == 0).all()


def test_a_thinned_reference_gives_its_local_level_with_an_honest_standard_error():
    errors, claimed = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        at = np.sort(rng.choice(np.arange(10_000, 100_000), 300, replace=False)).astype(float)
        true = 3.0 - 0.1 * np.log(at)
        reference = level(series(at, true + rng.normal(0, 0.0255, 300)), "noisy")
        placed = align(series([50_000], [0.0]), reference)
        errors.append(placed.reference[0] - (3.0 - 0.1 * np.log(50_000)))
        claimed.append(placed.reference_se[0])
        assert placed.low[0] < 50_000 < placed.high[0]
    assert np.std(errors) == pytest.approx(np.mean(claimed), rel=0.35)
    assert abs(np.mean(errors)) < 0.003


def test_outliers_do_not_bend_the_level():
    at = np.arange(1000, 2000, 4)
    values = np.full(len(at), 2.0) + np.tile([0.01, -0.01], len(at) // 2)
    values[::10] += 3.0
    assert np.abs(level(series(at, values), "noisy").values - 2.0).max() < 0.01


def test_unequal_batch_sizes_meet_on_tokens_not_on_steps():
    reference = series(np.arange(1, 2001) * 4.0, 5.0 - np.arange(1, 2001) * 4.0 / 8000, per_step=4.0)
    run_tokens = np.arange(1, 1001) * 8.0
    placed = align(series(run_tokens, 5.0 - run_tokens / 8000, per_step=8.0), level(reference, "noisy"))
    assert len(placed) == 1000
    assert np.abs(placed.gap).max() < 1e-6


def test_of_two_reference_points_at_equal_tokens_the_later_counts_and_non_finite_ones_are_left_out():
    reference = level(series([1, 2, 2, 3], [1.0, 9.0, 2.0, np.nan]), "evaluation")
    assert reference.points.tolist() == [1, 2]
    assert reference.raw.tolist() == [1.0, 2.0]


def test_empty_sides_give_nothing():
    empty = series([], [])
    assert len(align(series([1], [1]), level(empty, "noisy"))) == 0
    assert len(align(empty, level(series([1, 2], [1, 1]), "noisy"))) == 0


def test_kind_of_metric():
    assert kind_of("heldout/c4_en/ce_loss") == kind_of("downstream/arc_easy/accuracy") == "evaluation"
    assert kind_of("train/ce_loss") == "noisy"


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=6, max_size=60), st.integers(1, 59))
def test_a_point_s_place_depends_on_no_later_point(values, cut):
    at = np.arange(1, len(values) + 1) * 10.0
    reference = level(series(np.arange(1, 70) * 9.0, np.linspace(3, 2, 69)), "noisy")
    whole = align(series(at, values), reference)
    n = min(cut, len(values))
    part = align(series(at[:n], values[:n]), reference)
    assert np.array_equal(part.reference, whole.reference[: len(part)])
    assert np.array_equal(part.paired, whole.paired[: len(part)])
