"""Inside, outside, or it cannot be told: never fine where it is not shown."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from service.reports.standing import cell, real, standing

values = st.floats(-10, 10)
halves = st.floats(0, 10)


@given(values, halves, st.floats(1e-6, 10))
def test_an_interval_is_within_or_beyond_or_over_the_limit(value: float, half: float, limit: float) -> None:
    stand, because = standing(value, half, limit)
    low, high = value - half, value + half
    if stand == "inside":
        assert -limit - 1e-9 <= low
        assert high <= limit + 1e-9
    elif stand == "outside":
        assert low > limit - 1e-9 or high < -limit + 1e-9
    assert (stand == "cannot tell") == bool(because)


@given(values, halves, st.floats(1e-6, 10), st.floats(0, 10))
def test_a_wider_interval_tells_no_more(value: float, half: float, limit: float, more: float) -> None:
    wider = standing(value, half + more, limit)[0]
    assert wider in ("cannot tell", standing(value, half, limit)[0])


def test_what_is_not_known_cannot_be_told() -> None:
    assert standing(None, 0.1, 1.0)[0] == "cannot tell"
    assert standing(0.0, None, 1.0) == ("cannot tell", "its noise is not known")
    assert standing(0.0, math.nan, 1.0)[0] == "cannot tell"
    assert standing(0.0, 0.1, None) == ("cannot tell", "no tolerance is known")
    assert standing(math.nan, 0.1, 1.0)[0] == "cannot tell"
    assert standing(math.inf, 0.1, 1.0)[0] == "outside"


def test_a_value_that_is_not_finite_is_outside() -> None:
    made = cell(math.nan, 2.0, None, None, 0.1)
    assert (made.run, made.stand) == ("NaN", "outside")
    assert real(-math.inf) == "-Infinity"
