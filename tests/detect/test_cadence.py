"""Rules are asked anew where what they look at may say something else: bound to data, and never going back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.detect import engine
from service.detect.cache import LevelCache
from service.detect.cadence import AFTER_START, BLOCK, LEAST, reached
from service.detect.engine import evaluate
from service.detect.inputs import RowReadings, RunView, Segment, Series
from service.detect.replay import judge_prefixes, prefix

from .scenarios import HELD, TRAIN, pair

START = [Segment(0, 0.0, 1)]
AT_ONCE = {"non_finite", "loss_spike", "repeated_rows"}


@given(
    st.lists(st.sampled_from([1, 1, 1, 1, 1, 2, 7, 60]), min_size=LEAST, max_size=900),
    st.lists(st.integers(0, 1500), max_size=2),
)
@settings(max_examples=40, deadline=None)
def test_what_counts_never_becomes_less_while_points_come(strides: list[int], starts: list[int]) -> None:
    steps = np.cumsum(strides).astype(np.int64)
    counted = 0
    for n in range(LEAST - 20, len(steps) + 1):
        begun = [*START, *(Segment(s, 1.0, 1) for s in starts if s < int(steps[n - 1]))]
        now = reached(steps[:n], BLOCK, begun)
        assert counted <= now <= n
        assert n - now < BLOCK
        counted = now


@pytest.mark.parametrize(
    ("steps", "starts", "counts"),
    [
        (np.arange(1, 2_024), [0], 2_000),
        (np.arange(1, 2_001), [0], 2_000),
        (np.arange(1, LEAST), [0], LEAST - 1),  # a short log
        (np.arange(10, 20_240, 10), [0], 2_023),  # a sparse one
        (np.arange(1, 2_024), [0, 2_000 - AFTER_START + 1], 2_023),  # shortly behind a start
        (np.arange(1, 2_024), [0, 2_000 - AFTER_START], 2_000),
    ],
)
def test_which_points_count(steps: np.ndarray, starts: list[int], counts: int) -> None:
    assert reached(steps, BLOCK, [Segment(s, 0.0, 1) for s in starts]) == counts


def with_rows(view: RunView, repeated_from: int) -> RunView:
    steps = view.metrics[TRAIN].steps
    hashes = np.arange(len(steps), dtype=np.uint64)
    hashes[steps >= repeated_from] -= np.uint64(600)
    rows = RowReadings(steps, np.zeros_like(steps), hashes, 1, steps, np.full(len(steps), 4))
    return replace(view, rows=rows)


def test_between_two_blocks_nothing_is_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    view, cache = pair(1, steps=2_100), LevelCache()
    asked: list[str] = []
    real = engine._ask
    monkeypatch.setattr(engine, "_ask", lambda rule, findings: asked.append(rule.name) or real(rule, findings))
    evaluate(prefix(view, 2_001), cache)
    asked.clear()
    for step in range(2_002, 2_050):
        evaluate(prefix(view, step), cache)
    assert set(asked) == {"loss_spike"}
    assert len(asked) == 4  # at steps 2,010 to 2,040
    asked.clear()
    evaluate(prefix(view, 2_050), cache)
    assert set(asked) == {rule.name for rule in engine.RULES}


def test_what_must_be_told_at_once_is(monkeypatch: pytest.MonkeyPatch) -> None:
    view = with_rows(pair(2, steps=2_100), 2_003)
    values = view.metrics[TRAIN].values.copy()
    values[2_003] = np.nan
    train = replace(view.metrics[TRAIN], values=values)
    view = replace(view, metrics={**view.metrics, TRAIN: train})
    for cache in (LevelCache(), None):
        said = {j.rule: j for j in evaluate(prefix(view, 2_020), cache)}
        assert said["non_finite"].state == "yes"
        assert said["repeated_rows"].state == "yes"
        assert said["non_finite"].at_step == said["repeated_rows"].at_step == 2_020
        assert {j.at_step for rule, j in said.items() if rule not in AT_ONCE} == {2_000}


def test_an_evaluation_counts_at_once() -> None:
    view = pair(3, steps=2_100)
    held = view.metrics[HELD]
    late = Series(np.append(held.steps, 2_013), np.append(held.tokens, 2_013 * 4.0), np.append(held.values, 2.0))
    said = {j.rule: j for j in evaluate(replace(prefix(view, 2_020), metrics={**view.metrics, HELD: late}))}
    assert said["heldout_regression"].at_step >= 2_013


def test_kept_or_not_each_step_is_judged_the_same() -> None:
    view = with_rows(pair(4, steps=1_300), 900)
    steps = [*range(540, 1_300, 37), 1_250, 1_251, 1_299, 1_300]
    anew = [evaluate(prefix(view, step)) for step in sorted(steps)]
    assert [repr(said) for said in judge_prefixes(view, sorted(steps))] == [repr(said) for said in anew]
