"""Pair by pair: what healthy changes are taken to scatter by."""

import numpy as np
import pytest

from service.compare.pairs import own_se, paired_gap

STEPS = np.arange(1, 6_001)


def wandering(seed: int, size: float, early: float = 0.0) -> np.ndarray:
    """A gap with white noise of 0.0006 and a wander of `size` nats, `early` / step more."""
    rng = np.random.default_rng(seed)
    waves = np.cumsum(rng.normal(0.0, 1.0, len(STEPS)) * (size + early / STEPS) / 10.0)
    return waves + rng.normal(0.0, 0.0006, len(STEPS))


@pytest.mark.parametrize("seed", range(8))
def test_an_early_wander_that_fades_does_not_hide_a_late_change(seed: int):
    gap = wandering(seed, 0.00002, early=0.5)
    healthy = paired_gap(STEPS, gap, np.zeros(len(STEPS)))
    assert not (healthy.beyond[1:] > 1.0)[healthy.beyond[:-1] > 1.0].any()
    moved = paired_gap(STEPS, gap + np.where(STEPS > 4_000, 0.02, 0.0), np.zeros(len(STEPS)))
    shown = moved.steps[moved.beyond > 1.0]
    assert 4_000 < shown[0] <= 4_200


def test_a_past_change_counts_by_the_tokens_it_was_made_at():
    change, noise = np.zeros(200), np.full(207, 1e-9)
    change[:50] = 0.01 * (-1.0) ** np.arange(50)
    se = own_se(change, noise, np.arange(1, 201) * 1e9)
    assert se[199] == pytest.approx(se[99] * 100.0 / 200.0)
    assert own_se(change, noise, np.arange(1, 201) * 1e9, 120).tolist() == se[120:].tolist()


def test_a_rerun_that_is_equal_to_the_last_bit_is_judged_all_the_same():
    reference = np.random.default_rng(1).normal(2.0, 0.02, len(STEPS))
    run = reference - np.where(STEPS > 3_000, 0.003, 0.0)
    shown = paired_gap(STEPS, run, reference)
    assert 3_000 < shown.steps[shown.beyond > 1.0][0] <= 3_100


@pytest.mark.parametrize("siblings", [2, 3, 4])
def test_siblings_tell_how_much_healthy_changes_scatter(siblings: int):
    runs = [wandering(seed, 0.0002) for seed in range(siblings + 2)]
    found = paired_gap(STEPS, runs[0], runs[1], runs[2:])
    assert found.runs == (siblings if siblings > 2 else 0)
    assert not (found.beyond[1:] > 1.0)[found.beyond[:-1] > 1.0].any()
