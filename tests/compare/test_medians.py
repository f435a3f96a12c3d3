"""Medians of few values are numpy's, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from service.compare.medians import median, row_medians

VALUES = st.floats(-1e300, 1e300) | st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0])


@given(arrays(np.float64, st.integers(1, 40), elements=VALUES))
@pytest.mark.filterwarnings("ignore:invalid value")
def test_of_any_values(values: np.ndarray) -> None:
    kept = values.copy()
    assert np.array_equal(median(values), np.median(values), equal_nan=True)
    assert np.array_equal(values, kept, equal_nan=True)  # the values stay where they are


@given(arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 12)), elements=st.floats(-1e300, 1e300)))
def test_of_rows(rows: np.ndarray) -> None:
    assert np.array_equal(row_medians(rows), np.median(rows, axis=1))


def test_of_whole_numbers_and_of_none() -> None:
    assert median(np.array([3, 1, 2, 2], np.int64)) == 2.0
    assert np.isnan(median(np.zeros(0)))
