"""CUSUM episodes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.detect.sequential import Episode, episodes


def test_an_excursion_opens_at_the_threshold_and_closes_when_it_has_fallen_back():
    increments = np.array([-1, -1, 2, 2, 1, -1, -3, -3, -3, -1, 5], float)
    assert episodes(increments, 4.0, 8.0) == [Episode(onset=2, alarm=3, end=8), Episode(onset=10, alarm=10, end=None)]


def test_nothing_is_said_about_nothing():
    assert episodes(np.zeros(0), 4.0) == []
    assert episodes(np.full(50, -1.0), 4.0) == []


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), max_size=80), st.integers(0, 80))
def test_what_was_said_stays_said(increments, cut):
    whole, part = episodes(np.array(increments, float), 6.0), episodes(np.array(increments[:cut], float), 6.0)
    expected = [
        Episode(e.onset, e.alarm, e.end if e.end is not None and e.end < cut else None) for e in whole if e.alarm < cut
    ]
    assert part == expected
