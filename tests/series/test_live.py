"""Supersession and tokens, against models that count one update after the other."""

from __future__ import annotations

import math
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.series.live import (
    NO_LIMIT,
    GivenTokens,
    SegmentInfo,
    TokenAxis,
    consumed,
    lane_limit,
    live_limits,
    tokens_of,
    trainers_at,
)


def trainer(number: int, start_step: int, started_at: float, **fields: object) -> SegmentInfo:
    values = {"kind": "trainer", "tokens_per_step": 10} | fields
    return SegmentInfo(number, UUID(int=number), 1, start_step=start_step, started_at=started_at, **values)  # type: ignore[arg-type]


starts = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), min_size=1, max_size=6)
ramps = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 9)), min_size=1, max_size=4, unique_by=lambda e: e[0]
).map(lambda entries: tuple(sorted(entries)))


@given(starts)
def test_a_point_counts_until_a_newer_trainer_starts_before_it(starts: list[tuple[int, int]]) -> None:
    segments = [trainer(n + 1, start, at) for n, (start, at) in enumerate(starts)]
    limits = live_limits(segments)
    for segment in segments:
        newer = [s for s in segments if (s.started_at, str(s.uuid)) > (segment.started_at, str(segment.uuid))]
        for step in range(15):
            assert (step <= limits[segment.id]) == all(step <= s.start_step for s in newer)


@given(starts)
def test_each_step_has_the_weights_of_the_segment_that_made_them(starts: list[tuple[int, int]]) -> None:
    """Play the updates: who made the one to step S last is who S belongs to."""
    segments = sorted((trainer(n + 1, s, at) for n, (s, at) in enumerate(starts)), key=lambda s: s.order)
    maker: dict[int, int] = {}
    for index, segment in enumerate(segments):
        maker = {step: who for step, who in maker.items() if step <= segment.start_step}
        maker.setdefault(segment.start_step, index)
        maker |= dict.fromkeys(range(segment.start_step + 1, 15), index)
    owners = trainers_at(np.arange(15), segments)
    for step in range(15):
        if step in maker:
            assert owners[step] == maker[step]


def test_evaluations_go_with_the_weights_they_are_of() -> None:
    old, new = trainer(1, 0, 10.0), trainer(2, 50, 20.0)
    evaluator, imported = trainer(3, 0, 30.0, kind="evaluator"), trainer(4, 0, 40.0, kind="import")
    limits = live_limits([new, imported, evaluator, old])
    assert limits == {1: 50, 2: NO_LIMIT, 3: NO_LIMIT, 4: NO_LIMIT}
    assert lane_limit(limits, 3, 1) == 50
    assert lane_limit(limits, 3, 2) == NO_LIMIT
    assert lane_limit(limits, 3, None) == NO_LIMIT


@given(ramps)
def test_a_ramp_is_the_sum_of_its_updates(ramp: tuple[tuple[int, int], ...]) -> None:
    segment = trainer(1, 0, 0.0, tokens_per_step=None, ramp=ramp)
    total, expected = 0, [0]
    for step in range(1, 20):
        total += ([rate for start, rate in ramp if start <= step] or [ramp[0][1]])[-1]
        expected.append(total)
    found = consumed(segment, np.arange(20))
    assert found is not None
    assert found.tolist() == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 9), st.one_of(st.none(), st.integers(0, 500))),
        min_size=1,
        max_size=5,
    )
)
def test_tokens_go_on_from_the_live_value_at_the_start(starts: list[tuple[int, int, int | None]]) -> None:
    """Play the updates of each start; what the run had at its first step is what it goes on from."""
    segments = [
        trainer(n + 1, start, float(n), tokens_per_step=rate, start_tokens=None if told is None else float(told))
        for n, (start, rate, told) in enumerate(starts)
    ]
    live: dict[int, float] = {}
    for segment, (start, rate, told) in zip(segments, starts, strict=True):
        reached = [step for step in live if step <= start]
        base = float(told) if told is not None else live[start] if reached else float(start * rate)
        live = {step: tokens for step, tokens in live.items() if step <= start}
        own = {start: base} | {step: base + (step - start) * rate for step in range(start + 1, 20)}
        steps = np.arange(start, 20)
        older = segments[: segments.index(segment) + 1]
        assert tokens_of(steps, segment.id, older, offset=7.0).tolist() == [own[int(step)] + 7.0 for step in steps]
        live = (
            own
            | {step: tokens for step, tokens in live.items() if step < start}
            | ({start: live[start]} if start in live and told is None else {})
        )


def test_given_tokens_win_and_plans_fill_the_gaps() -> None:
    planned, unplanned = trainer(1, 0, 0.0), trainer(2, 0, 1.0, tokens_per_step=None)
    given = {
        1: GivenTokens(np.array([5, 8]), np.array([100.0, 170.0])),
        2: GivenTokens(np.array([2, 4]), np.array([20.0, 40.0])),
    }
    axis = TokenAxis([planned, unplanned], given)
    assert axis.of(np.array([4, 5, 6, 8, 9]), 1).tolist() == [90.0, 100.0, 110.0, 170.0, 180.0]
    assert axis.of(np.array([2, 3, 4]), 2).tolist() == [20.0, 30.0, 40.0]
    assert np.isnan(axis.of(np.array([1, 5]), 2)).all()
    later = trainer(3, 8, 2.0, start_tokens=None)
    assert TokenAxis([planned, later], given).of(np.array([8, 9]), 3).tolist() == [170.0, 180.0]


def test_tokens_of_evaluations_are_those_of_the_weights() -> None:
    first, second = trainer(1, 0, 0.0, tokens_per_step=10), trainer(2, 5, 1.0, tokens_per_step=100)
    evaluator = trainer(3, 0, 2.0, kind="evaluator", tokens_per_step=None)
    axis = TokenAxis([first, second, evaluator])
    assert axis.of(np.array([4, 5, 6]), 3).tolist() == [40.0, 50.0, 150.0]
    assert axis.of(np.array([6]), 3, 1).tolist() == [60.0]
    alone = TokenAxis([evaluator]).of(np.array([0, 3]), 3)
    assert alone[0] == 0.0
    assert math.isnan(alone[1])


def test_thousands_of_restarts() -> None:
    segments = [trainer(n + 1, n * 10, float(n)) for n in range(3000)]
    assert tokens_of(np.array([29_995]), 3000, segments).tolist() == [299_950.0]


@pytest.mark.parametrize("tie", [(1, 2), (2, 1)])
def test_equal_starts_are_ordered_by_id(tie: tuple[int, int]) -> None:
    segments = [trainer(number, 3, 5.0) for number in tie]
    assert live_limits(segments) == {1: 3, 2: NO_LIMIT}
