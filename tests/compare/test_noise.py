"""Step noise, and the tolerance healthy runs allow."""

import numpy as np
import pytest

from service.compare.noise import assumed_tolerance, default_window, sibling_tolerance, step_noise, variance_inflation


def test_step_noise_sees_through_trend_spikes_and_gaps():
    rng = np.random.default_rng(0)
    values = np.linspace(3, 2, 4000) + rng.normal(0, 0.0255, 4000)
    values[::100] += 1.0
    values[7::100] = np.nan
    assert step_noise(values) == pytest.approx(0.0255, rel=0.1)
    assert step_noise(np.array([1.0, 2.0, np.nan, 3.0, 4.0])) is None


def test_the_assumed_tolerance_is_the_7b_one_and_grows_with_the_noise():
    at_7b = assumed_tolerance(0.0255)
    assert at_7b.value == pytest.approx(0.0153, abs=1e-4)
    assert at_7b.source.startswith("assumed, ")
    assert assumed_tolerance(None).value == 0.015
    assert assumed_tolerance(0.115).value == pytest.approx(0.069)
    assert assumed_tolerance(0.115).runs == 0


def test_the_default_window_holds_noise_to_an_eighth_of_the_tolerance_between_50_and_500():
    assert default_window(0.0255, 0.015) == 400
    assert default_window(0.001, 0.015) == 50
    assert default_window(1.0, 0.015) == 500
    assert default_window(0.115, 0.069, length=400) == 50


def test_sibling_tolerance_is_at_least_three_and_a_half_sd_and_says_what_it_rests_on():
    rng = np.random.default_rng(1)
    gaps = [rng.normal(0, 0.02, 40) for _ in range(3)]
    found = sibling_tolerance(gaps, 50, 0.05)
    assert found.value >= 3.5 * np.concatenate(gaps).std()
    assert found.value == pytest.approx(3.5 * 0.02, rel=0.15)
    assert (found.runs, found.window_steps, found.noise_sd) == (3, 50, 0.05)
    assert "3 healthy runs" in found.source
    assert "50-step" in found.source


def test_a_lucky_spread_of_siblings_does_not_go_below_what_step_noise_alone_gives():
    rng = np.random.default_rng(2)
    gaps = [rng.normal(0, 0.012, 8) for _ in range(3)]
    assert sibling_tolerance(gaps, 50, 0.115).value >= 3.5 * 0.115 * np.sqrt(2 / 50)


def test_siblings_that_share_batches_may_lie_below_it():
    rng = np.random.default_rng(3)
    gaps = [offset + rng.normal(0, 0.001, 30) for offset in (0.004, -0.006, 0.007)]
    # Three offsets tell a spread to 40 % only, however many blocks each has.
    assert sibling_tolerance(gaps, 50, 0.126).value == pytest.approx(1.41 * 3.5 * 0.0058, rel=0.1)
    # And 90 blocks that wander together by twelves are eight values: 1 + 1/sqrt(2 * 7.5).
    own = sibling_tolerance(gaps, 50, 0.126, from_own_offset=True).value
    assert own == pytest.approx(1.26 * 3.5 * 0.0058, rel=0.1)


def test_constant_offsets_between_siblings_are_wander():
    assert sibling_tolerance([np.full(20, 0.01), np.full(20, -0.01)], 50, None).value >= 0.035


def test_without_a_common_step_there_is_no_sibling_tolerance():
    with pytest.raises(ValueError, match="no sibling shares steps"):
        sibling_tolerance([np.array([np.nan])], 50, None)


def test_variance_inflation():
    assert variance_inflation(np.array([-0.5, 0.0, 0.5, 0.99])) == pytest.approx([1.0, 1.0, 3.0, 19.0])
