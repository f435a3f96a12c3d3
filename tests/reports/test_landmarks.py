"""Which checkpoints a report shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.reports.landmarks import USUAL, PlaceError, asked, places, usual

STEPS = np.arange(1000, 20_001, 1000)
TOKENS = 1000.0 * STEPS.astype(np.float64)


def test_plain_numbers_are_steps_and_scaled_ones_tokens() -> None:
    found = places("735000, 1.5T,3k steps, 5e9 tokens")
    assert [(p.value, p.tokens) for p in found] == [(735000, False), (1.5e12, True), (3000, False), (5e9, True)]


@pytest.mark.parametrize("text", ["", "soon", "1,,2", "-5", "1.5Q", ",".join(["1"] * 25)])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(PlaceError):
        places(text)


def test_the_nearest_checkpoint_is_taken_once_and_says_what_for() -> None:
    found = asked(places("1400, 1900, 19M"), STEPS, TOKENS)
    assert found == {0: "nearest to 1400", 1: "nearest to 1900", 18: "nearest to 19M"}
    assert asked(places("1T"), STEPS, np.full(len(STEPS), np.nan)) == {}


def test_an_onset_is_told_from_both_sides() -> None:
    found = usual(STEPS, (7300.0, 7400.0), 9100.0)
    assert found[6] == "last before the onset"
    assert found[9] == "first after the alert"
    assert (found[0], found[19]) == ("first", "newest")


@given(st.lists(st.integers(0, 10**6), unique=True).map(sorted), st.integers(0, 10**6))
def test_few_checkpoints_in_order_the_newest_among_them(steps: list[int], onset: int) -> None:
    found = usual(np.array(steps, np.int64), (float(onset), float(onset)), float(onset))
    assert len(found) <= USUAL
    assert list(found) == sorted(found)
    assert not steps or len(steps) - 1 in found
