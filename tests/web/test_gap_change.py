"""The train gap less the held-out gap, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from service.judgements.gap import Gap
from web.content.gaps import gap_change


def gap_at(first: list[int], last: list[int], value: list[float], half: float) -> Gap:
    begin, end, values = np.array(first), np.array(last), np.array(value)
    tokens = np.ones(len(values), np.int64)
    return Gap(begin, end, begin * 10.0, end * 10.0, values, values - half, values + half, tokens, None, None)


def test_it_is_read_where_the_held_out_gap_stands() -> None:
    train = gap_at([1, 101], [99, 199], [0.0, -0.2], 0.03)  # middles 50 and 150
    held = gap_at([100, 150, 500], [100, 150, 500], [0.1, 0.0, 9.0], 0.04)
    change = gap_change(train, held)
    assert change.last_step.tolist() == [100, 150]  # nothing beyond the train gap's end
    assert change.gap == pytest.approx([-0.1 - 0.1, -0.2 - 0.0])
    assert change.high - change.gap == pytest.approx([0.05, 0.05])  # sqrt(0.03² + 0.04²)
    assert change.first_tokens.tolist() == [1000.0, 1500.0]


def test_there_is_none_before_both_are_known() -> None:
    nothing = gap_at([], [], [], 0.0)
    some = gap_at([1], [9], [0.1], 0.01)
    assert len(gap_change(nothing, some).gap) == len(gap_change(some, nothing).gap) == 0
