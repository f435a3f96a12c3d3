"""Overviews for charts: exact, NaN-aware, stable."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compare.downsample import overview, pick

VALUES = st.lists(st.one_of(st.floats(-100, 100), st.sampled_from([np.nan, np.inf, -np.inf])), min_size=1, max_size=200)


def test_a_small_overview_by_hand():
    seen = overview(np.array([0, 1, 2, 3, 5, 9]), np.array([1.0, np.nan, 4.0, 2.0, np.inf, 7.0]), 5)
    assert seen.width == 2
    assert seen.start.tolist() == [0, 2, 4, 8]
    assert seen.count.tolist() == [2, 2, 1, 1]
    assert seen.non_finite.tolist() == [1, 0, 1, 0]
    assert seen.minimum[[0, 1, 3]].tolist() == [1.0, 2.0, 7.0]
    assert seen.maximum[[0, 1, 3]].tolist() == [1.0, 4.0, 7.0]
    assert seen.mean[[0, 1, 3]].tolist() == [1.0, 3.0, 7.0]
    assert seen.first[[0, 1, 3]].tolist() == [1.0, 4.0, 7.0]
    assert seen.last[[0, 1, 3]].tolist() == [1.0, 2.0, 7.0]
    assert np.isnan([seen.minimum[2], seen.mean[2], seen.first[2], seen.last[2]]).all()


@settings(deadline=None)
@given(VALUES, st.integers(2, 40), st.integers(0, 1000))
def test_every_window_is_exact(values, windows, start):
    steps, values = start + np.arange(len(values)) * 3, np.array(values)
    seen = overview(steps, values, windows)
    assert len(seen) <= windows
    assert seen.count.sum() == len(values)
    for i in range(len(seen)):
        part = values[(steps >= seen.start[i]) & (steps < seen.start[i] + seen.width)]
        good = part[np.isfinite(part)]
        assert seen.non_finite[i] == len(part) - len(good)
        if len(good):
            assert (seen.minimum[i], seen.maximum[i]) == (good.min(), good.max())
            assert (seen.first[i], seen.last[i]) == (good[0], good[-1])
            assert seen.mean[i] == pytest.approx(good.mean(), abs=1e-9)
        else:
            assert np.isnan(seen.mean[i])


@settings(deadline=None)
@given(st.integers(2, 100), st.integers(1, 100), st.integers(2, 20))
def test_appending_changes_only_the_last_window_until_the_width_doubles(n, more, windows):
    values = np.sin(np.arange(n + more))
    old, new = overview(np.arange(n), values[:n], windows), overview(np.arange(n + more), values, windows)
    if old.width == new.width:
        assert np.array_equal(old.maximum[:-1], new.maximum[: len(old) - 1])
    else:
        assert new.width % old.width == 0


def test_pick_keeps_spikes_and_skips_what_is_not_finite():
    steps, values = np.arange(10_000), np.zeros(10_000)
    values[5000], values[7000] = 50.0, np.nan
    chosen = pick(steps, values, 200)
    assert len(chosen) <= 200
    assert 5000 in chosen
    assert 7000 not in chosen
    assert (np.diff(chosen) > 0).all()
    assert pick(steps[:10], values[:10], 200).tolist() == list(range(10))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="at least 2"):
        overview(np.arange(3), np.zeros(3), 1)
    with pytest.raises(ValueError, match="3 steps but 2 values"):
        overview(np.arange(3), np.zeros(2), 5)
    assert len(overview(np.zeros(0, np.int64), np.zeros(0), 5)) == 0
