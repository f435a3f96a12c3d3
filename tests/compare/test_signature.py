"""Batches recognised by their residuals, and pairs of equal batches: real reruns (tests/golden) and made-up noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compare.pairs import paired_gap
from service.compare.signature import (
    best_match,
    correlation,
    correlation_limit,
    correlations,
    on_grid,
    residuals,
    same_batch_evidence,
    settled_points,
)
from service.compare.words import recurrences

TABLE = pd.read_csv(Path(__file__).parents[1] / "golden" / "batch_signature" / "reruns.csv")
STEPS = TABLE["step"].to_numpy("int64")
RUNS = TABLE.drop(columns="step").to_numpy("float64").T
SIGNALS = [residuals(run) for run in RUNS]


@pytest.mark.parametrize(
    ("n", "same", "unrelated"), [(8, 0.96, 0.92), (16, 0.98, 0.72), (32, 0.99, 0.51), (64, 0.99, 0.41)]
)
def test_the_measured_table(n, same, unrelated):
    """facts: median of the same batches, 99.9 % quantile of unrelated ones."""
    rng = np.random.default_rng(11)
    met, other = [], []
    for _ in range(4000):
        i, j = rng.choice(len(RUNS), 2, replace=False)
        a, b = rng.integers(100, 1530 - n, 2)
        met.append(correlation(SIGNALS[i][a : a + n], SIGNALS[j][a : a + n])[0])
        if abs(a - b) > n:
            other.append(correlation(SIGNALS[i][a : a + n], SIGNALS[j][b : b + n])[0])
    assert np.median(met) > same
    assert np.quantile(other, 0.999) == pytest.approx(unrelated, abs=0.06)


def test_correlations_are_those_of_the_definition():
    rng = np.random.default_rng(3)
    history, window = rng.normal(size=9000), rng.normal(size=48)
    history[[5, 700]] = np.nan
    clean = np.nan_to_num(history)
    expected = [
        window @ clean[i : i + 48] / np.linalg.norm(window) / np.linalg.norm(clean[i : i + 48])
        for i in range(9000 - 47)
    ]
    assert correlations(window, history) == pytest.approx(expected, abs=1e-5)


def test_a_missing_point_of_the_window_counts_for_nothing():
    rng = np.random.default_rng(4)
    history = rng.normal(size=400)
    window = history[100:148].copy()
    window[[3, 17, 40]] = np.nan
    assert correlations(window, history)[100] == pytest.approx(1.0, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf, -np.inf]), max_size=200),
    st.lists(st.integers(0, 220), max_size=4),
)
def test_residuals_of_anything_are_bounded_and_missing_where_it_is(values, breaks):
    given_values = np.array(values, dtype=np.float64)
    made = residuals(given_values, breaks)
    assert (np.isfinite(made) == np.isfinite(given_values)).all()
    assert np.abs(np.nan_to_num(made)).max(initial=0.0) <= 3.0


@settings(max_examples=25, deadline=None)
@given(st.floats(-50, 50), st.floats(0.01, 100), st.integers(0, 1000))
def test_residuals_know_neither_level_nor_unit(level, unit, seed):
    noise = np.random.default_rng(seed).normal(size=300)
    assert residuals(level + unit * noise) == pytest.approx(residuals(noise), abs=1e-6)


@given(seed=st.integers(0, 1_000), n=st.integers(600, 40_000), share=st.floats(0.05, 1.0), holes=st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_settled_residual_is_the_same_bits_whatever_comes_later_and_wherever_one_begins(seed, n, share, holes):
    rng = np.random.default_rng(seed)
    values = rng.normal(2.0, 0.03, n) + 50.0 * (rng.random(n) < 0.001)
    if holes:
        values[rng.random(n) < 0.01] = np.nan
    breaks = sorted(rng.integers(1, n, seed % 4).tolist())
    whole, earlier = residuals(values, breaks), max(int(share * n), 1)
    kept = settled_points(earlier)
    before = residuals(values[:earlier], [b for b in breaks if b < earlier])
    assert before[:kept].tobytes() == whole[:kept].tobytes()
    assert residuals(values, breaks, start=kept).tobytes() == whole[kept:].tobytes()


def test_residuals_hold_nothing_of_the_curve():
    at = np.arange(1000)
    noise = np.random.default_rng(2).normal(0.0, 0.02, 1000)
    bent = residuals(noise + 3.0 / np.sqrt(at + 60.0) - 0.001 * at)
    assert correlation(bent, residuals(noise))[0] > 0.99


def test_no_local_mean_reaches_over_a_break():
    noise = np.random.default_rng(5).normal(0.0, 0.02, 400)
    jumped = noise - np.where(np.arange(400) >= 200, 1.0, 0.0)
    assert residuals(jumped, [200]) == pytest.approx(
        np.concatenate((residuals(noise[:200]), residuals(noise[200:]))), abs=0.7
    )
    assert np.abs(residuals(jumped, [200])[195:205]).max() < 3.0
    assert np.abs(residuals(jumped)[195:205]).max() == pytest.approx(3.0)


@pytest.mark.parametrize("lag", [70, 97, 1200])
def test_the_best_match_is_at_the_lag_with_24_points_of_a_real_rerun(lag):
    first = 1300
    fresh = SIGNALS[1][first - lag : first - lag + 64]  # another rerun stands for other weights
    history = np.concatenate((SIGNALS[0][:first], fresh))
    for n in (24, 64):
        match = best_match(fresh[:n], history[: first + n], alpha=1e-8, least=0.8, min_lag=16)
        assert match is not None
        assert (match.lag, match.n) == (lag, n)
        assert match.runner_up < match.limit <= match.r


def test_unrelated_batches_do_not_match_and_the_limit_keeps_its_promise():
    rng = np.random.default_rng(6)
    best = []
    for _ in range(300):
        noise = rng.normal(size=1064)
        assert best_match(noise[-64:], noise, alpha=1e-8, least=0.5, min_lag=64) is None
        best.append(correlations(noise[-64:], noise[:1000]).max())
    share = np.mean(np.array(best) > correlation_limit(64, 937, 0.05))
    assert 0.01 < share < 0.12


def test_half_a_batch_in_common_is_no_match():
    rng = np.random.default_rng(10)
    history = rng.normal(size=264)
    history[200:] = 0.75 * history[20:84] + 0.66 * rng.normal(size=64)
    assert best_match(history[200:], history, alpha=1e-3, least=0.5, min_lag=16).lag == 180
    assert best_match(history[200:], history, alpha=1e-3, least=0.8, min_lag=16) is None


def test_spikes_that_meet_are_no_match():
    rng = np.random.default_rng(7)
    noise = rng.normal(size=3000)
    noise[[500, 2970]] += 80.0
    signal = residuals(noise)
    assert best_match(signal[-64:], signal, alpha=1e-8, least=0.5, min_lag=64) is None


def test_evidence_is_bounded_and_has_the_right_sign():
    same = same_batch_evidence(SIGNALS[0], SIGNALS[1])
    other = same_batch_evidence(SIGNALS[0][:-50], SIGNALS[1][50:])
    assert same.mean() > 0.9
    assert other.mean() < -1.0
    assert min(same.min(), other.min()) >= -4.0
    assert max(same.max(), other.max()) <= 1.3


def test_recurrences_find_a_stretch_anywhere_and_nothing_in_noise():
    rng = np.random.default_rng(8)
    signal = rng.normal(size=60_000)
    assert recurrences(signal, min_lag=64) == []
    signal[40_000:40_300] = signal[12_000:12_300] + rng.normal(0.0, 0.1, 300)
    (found,) = recurrences(signal, min_lag=64)
    assert 40_000 <= found[0] < 40_240
    assert found[1] == 28_000


def test_a_grid_keeps_the_usual_spacing():
    grid = on_grid(np.array([10, 20, 30, 35, 50, 60]), np.array([1.0, 2.0, 3.0, 9.0, np.inf, 6.0]))
    assert grid is not None
    assert (grid.first_step, grid.stride, grid.step(5), grid.index(41)) == (10, 10, 60, 4)
    assert grid.values == pytest.approx([1.0, 2.0, 3.0, np.nan, np.nan, 6.0], nan_ok=True)
    assert on_grid(np.array([5]), np.array([1.0])) is None
    assert on_grid(np.array([0, 1, 900, 1900, 3000, 4200]), np.zeros(6)) is None


def alarm(at: int, size: float, run: int, reference: int, siblings: list[int]) -> int | None:
    """Steps from a drift of `size` after step `at` to where it shows; None: it does not."""
    drifted = RUNS[run] + np.where(at < STEPS, size, 0.0)
    gap = paired_gap(STEPS, drifted, RUNS[reference], [RUNS[k] for k in siblings])
    over = gap.steps[gap.beyond > 1.0]
    return int(over[0]) - at if len(over) else None


@pytest.mark.parametrize("run", range(6))
def test_by_pairs_healthy_reruns_do_not_drift(run):
    others = [k for k in range(6) if k != run]
    assert alarm(1530, 0.0, run, others[0], others[1:]) is None
    assert all(alarm(1530, 0.0, run, k, []) is None for k in others)


@pytest.mark.parametrize(("at", "size"), [(1300, 0.004), (1000, 0.006), (1300, 0.005), (800, 0.008)])
def test_by_pairs_a_drift_far_below_one_steps_noise_shows_within_200_steps(at, size):
    for run in range(6):
        others = [k for k in range(6) if k != run]
        delay = alarm(at, size, run, others[0], others[1:])
        assert delay is not None
        assert 0 < delay <= 200


def test_by_pairs_at_7b_noise_the_own_past_is_enough():
    rng = np.random.default_rng(9)
    steps = np.arange(1, 1601)
    reference = rng.normal(2.0, 0.0255, 1600)
    run = reference + rng.normal(0.0, 0.0006, 1600)
    assert not (paired_gap(steps, run, reference).beyond > 1.0).any()
    gap = paired_gap(steps, run + np.where(steps > 1000, 0.003, 0.0), reference)
    over = gap.steps[gap.beyond > 1.0]
    assert 1000 < over[0] <= 1100
    assert gap.smallest[-1] < 0.002
    assert gap.level[-1] == pytest.approx(0.003, abs=0.0005)


def test_paired_gap_is_causal_and_forgives_missing_pairs():
    run = RUNS[0].copy()
    run[::9] = np.nan
    whole = paired_gap(STEPS, run, RUNS[1])
    part = paired_gap(STEPS[:1000], run[:1000], RUNS[1][:1000])
    n = len(part)
    assert n > 20
    assert (whole.steps[:n] == part.steps).all()
    assert whole.change[:n] == pytest.approx(part.change)
    assert whole.se[:n] == pytest.approx(part.se, nan_ok=True)
    nothing = paired_gap(STEPS, np.full(len(STEPS), np.nan), RUNS[1], [RUNS[2], RUNS[3], RUNS[4]])
    assert np.isnan(nothing.change).all()
