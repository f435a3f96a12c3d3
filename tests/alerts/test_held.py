"""What a person resolved stays closed until it has cleared, whatever its rules say meanwhile."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.alerts.held import Held, hold, settle
from service.detect.judgement import Judgement

CLEAR = 60.0


def answer(rule: str, state: Any, step: int) -> Judgement:
    return Judgement(rule, state, step, f"{rule} says {state}")


def play(*evaluations: tuple[float, Any]) -> list[bool]:
    """After each evaluation of rule a: whether it is still held back."""
    held: Held = hold(["a"]) or {}
    left: list[bool] = []
    for step, (now, state) in enumerate(evaluations, 1):
        held = settle(held, [answer("a", state, step)] if state else [], now, CLEAR)
        left.append(bool(held))
    return left


def test_nothing_is_held_where_nothing_says_yes() -> None:
    assert hold([]) is None


def test_let_go_after_the_clear_time_by_later_data() -> None:
    assert play((0, "yes"), (10, "no"), (60, "no"), (70, "no")) == [True, True, True, False]


def test_a_yes_within_the_clear_time_begins_it_anew() -> None:
    assert play((0, "no"), (30, "yes"), (70, "no"), (100, "no"), (131, "no")) == [True, True, True, True, False]


def test_missing_data_let_nothing_go() -> None:
    assert play((0, "no"), (100, "cannot tell"), (200, None)) == [True, True, True]


def test_the_same_data_again_let_nothing_go() -> None:
    said = [answer("a", "no", 5)]
    assert settle(settle({"a": None}, said, 0.0, CLEAR), said, 999.0, CLEAR) == {"a": [0.0, 5]}


def test_what_was_withdrawn_is_let_go_at_once() -> None:
    assert settle({"a": None, "b": None}, [answer("a", "yes", 1)], 0.0, CLEAR, {"a": "muted"}) == {"b": None}


@given(st.lists(st.sampled_from(["yes", "no", "cannot tell", None]), max_size=20))
def test_never_let_go_while_the_last_word_is_yes(states: list[Any]) -> None:
    held: Held = {"a": None}
    said = "yes"
    for step, state in enumerate(states):
        held = settle(held, [answer("a", state, step)] if state else [], 100.0 * step, CLEAR)
        said = state if state in ("yes", "no") else said
        if not held:
            assert said == "no"
            break
