"""A reference's own slow wander, told from its step noise."""

import numpy as np
import pytest

from service.compare.noise import step_noise
from service.compare.wander import own_wander, wander_tolerance

STEPS = np.arange(1, 100_001)
CURVE = 2.0 + 0.9 * (STEPS / 10_000.0 + 1.0) ** -0.35


def wandering(rng: np.random.Generator, sd: float) -> np.ndarray:
    blocks = len(STEPS) // 500
    out = np.empty(blocks)
    out[0] = rng.normal(0, sd)
    for i in range(1, blocks):
        out[i] = 0.85 * out[i - 1] + rng.normal(0, sd * np.sqrt(1 - 0.85**2))
    return np.repeat(out, 500)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_white_noise_is_no_wander(seed):
    values = CURVE + np.random.default_rng(seed).normal(0, 0.0255, len(STEPS))
    assert own_wander(STEPS, values, 500, step_noise(values)) < 0.001


def test_wander_is_measured():
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        values = CURVE + rng.normal(0, 0.0255, len(STEPS)) + wandering(rng, 0.01)
        found.append(own_wander(STEPS, values, 500, step_noise(values)))
    assert np.mean(found) == pytest.approx(0.01, rel=0.25)


def test_a_short_or_thinned_series_does_not_tell():
    assert own_wander(STEPS[:1500], CURVE[:1500], 50, 0.01) is None
    assert own_wander(STEPS[::400], CURVE[::400], 500, 0.01) is None
    assert own_wander(STEPS, np.full(len(STEPS), np.nan), 500, None) is None


def test_the_tolerance_is_of_two_such_runs():
    value, source = wander_tolerance(0.01)
    assert value == pytest.approx(3.5 * np.sqrt(2.0) * 0.01)
    assert "the reference's own slow wander" in source
