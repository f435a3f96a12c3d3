"""Recurrences of a signal that grows are those of the whole signal."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.compare.words import Recurrences, recurrences

SIGNAL = np.random.default_rng(5).normal(size=3000)
change = st.tuples(
    st.sampled_from(["grow", "grow", "copy", "alter"]), st.integers(1, 400), st.integers(100, 900), st.integers(0, 200)
)


@example(
    [("grow", 400, 100, 0), ("grow", 400, 100, 0), ("copy", 300, 600, 0), ("alter", 1, 100, 0), ("grow", 99, 100, 9)]
)
@given(st.lists(change, min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_found_bit_by_bit_as_at_once(changes: list[tuple[str, int, int, int]]) -> None:
    kept, signal, used = Recurrences(64), np.zeros(0), 0
    for what, count, lag, rest in changes:
        if what == "grow":
            signal = np.concatenate((signal, SIGNAL[used : used + count]))
            used += count
        elif what == "copy" and len(signal) > lag:
            signal = np.concatenate((signal, signal[len(signal) - lag :][:count]))
        elif what == "alter" and len(signal) > 50:
            signal = signal.copy()
            signal[len(signal) // 2 :] = -signal[len(signal) // 2 :]
        cut = max(len(signal) - rest, 0)
        found = kept.find(signal[:cut], signal[cut:])
        assert [hit[:2] for hit in found] == [hit[:2] for hit in recurrences(signal, min_lag=64)]


def test_a_copy_is_found_with_its_lag() -> None:
    signal = np.concatenate((SIGNAL[:1500], SIGNAL[500:900], SIGNAL[2000:2300]))
    assert [lag for _, lag, _ in recurrences(signal, min_lag=64)] == [1000]
