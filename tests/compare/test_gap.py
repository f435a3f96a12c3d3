"""Block means of the gap and their standard errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compare.align import align, level
from service.compare.gap import block_gaps, change, generalization_gap_change
from service.detect.inputs import Series


def series(steps, values):
    steps = np.asarray(steps, np.int64)
    return Series(steps, steps * 1000.0, np.asarray(values, float))


def blocks_of(run, reference, window=50, at=None):
    at = np.arange(1, len(run) + 1) if at is None else at
    full = np.arange(1, len(reference) + 1)
    return block_gaps(align(series(at, run), level(series(full, reference), "noisy")), window)


def test_blocks_lie_on_the_step_grid_and_the_one_being_filled_is_left_out():
    blocks = blocks_of(np.full(149, 1.5), np.full(200, 1.0))
    assert blocks.first_step.tolist() == [1, 51]
    assert blocks.last_step.tolist() == [50, 100]
    assert blocks.mean == pytest.approx([0.5, 0.5])
    assert blocks.n.tolist() == [50, 50]
    assert blocks.support.tolist() == [50, 50]
    assert blocks.first_tokens.tolist() == [1000.0, 51000.0]


@pytest.mark.parametrize("phi", [0.0, 0.4])
def test_the_standard_error_is_the_scatter_of_block_means(phi):
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.03, 40_000)
    for i in range(1, len(noise)):
        noise[i] += phi * noise[i - 1]
    blocks = blocks_of(noise, np.zeros(40_000), window=100)
    assert blocks.se[50:].mean() == pytest.approx(blocks.mean.std(), rel=0.2)


def test_spikes_and_missing_and_non_finite_values_do_not_move_the_mean():
    rng = np.random.default_rng(2)
    run = rng.normal(-0.02, 0.01, 500)
    run[::25] += 8.0
    run[3::40] = np.nan
    run[5::40] = np.inf
    at = np.delete(np.arange(1, 501), np.s_[100:140])
    blocks = blocks_of(run[at - 1], np.zeros(500), at=at)
    assert np.abs(blocks.mean + 0.02).max() < 0.01
    assert blocks.first_step[2] == 141  # of 101 … 150 only the last ten steps were logged


def test_the_reference_s_own_noise_is_in_the_standard_error():
    rng = np.random.default_rng(3)
    thin = np.arange(1, 50_001, 400)
    errors = []
    for _ in range(40):
        reference = series(thin, 2.0 + rng.normal(0, 0.03, len(thin)))
        blocks = block_gaps(align(series(np.arange(1, 50_001), np.full(50_000, 2.0)), level(reference, "noisy")), 500)
        errors.append(blocks.mean[50] / blocks.se[50])
    assert 0.6 < np.std(errors) < 1.4
    assert 20 <= blocks.support[50] <= 30


def test_thin_logs_get_wider_windows():
    at = np.arange(10, 20_001, 10)
    blocks = blocks_of(np.zeros(len(at)), np.zeros(20_000), window=50, at=at)
    assert set(blocks.n.tolist()) == {20}


@settings(deadline=None)
@given(st.integers(60, 400), st.integers(0, 2**32 - 1))
def test_appending_points_changes_no_complete_block(cut, seed):
    rng = np.random.default_rng(seed)
    run = rng.normal(0, 1, 400)
    run[rng.random(400) < 0.1] = np.nan
    whole, part = blocks_of(run, np.zeros(400)), blocks_of(run[:cut], np.zeros(400))
    n = len(part)
    for name in ("first_step", "last_step", "mean", "se", "n", "support"):
        assert getattr(part, name) == pytest.approx(getattr(whole, name)[:n], rel=1e-12, abs=1e-15), (
            name
        )  # summation order


def test_change_forgives_one_jump_and_states_its_error():
    before, after = np.array([0.0, 0.001, -0.001, 0.0]), np.array([0.0, 0.011, 0.0])
    moved = change(before, after, 0.002)
    assert moved.value == pytest.approx(0.0)
    assert moved.se == pytest.approx(0.002 * np.sqrt(np.pi / 2 * (1 / 4 + 1 / 3)))
    assert change(np.zeros(0), np.array([0.1]), 0.0, assumed_sd=0.3).se == pytest.approx(0.3)
    unknown = change(before, np.array([np.nan]), 0.002)
    assert np.isnan(unknown.value)
    assert (unknown.se, unknown.before, unknown.after) == (np.inf, 4, 0)


def test_generalization_gap_change_is_train_minus_heldout():
    train, held = change(np.zeros(5), np.full(5, -0.25), 0.01), change(np.zeros(5), np.full(5, 0.05), 0.01)
    assert generalization_gap_change(train, held).value == pytest.approx(-0.30)
