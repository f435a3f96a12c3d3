"""Rows beside expected rows: against a plain reading of the rules, incremental as from scratch, and partial reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.detect import same_rows
from service.detect.cache import LevelCache
from service.detect.inputs import DeclaredData, RowReadings, RunView, Segment
from service.detect.same_rows import RowsBeside, beside, find

STEPS = 12
reads = st.lists(st.tuples(st.integers(0, STEPS - 1), st.integers(0, 4)), max_size=30)
counts = st.lists(st.integers(0, 2), min_size=STEPS, max_size=STEPS)  # rows reported at each step; 0: not reported


def readings(read: list[tuple[int, int]], rows: list[int], sample: int = 1) -> RowReadings:
    kept = sorted(((s, v * sample) for s, v in read if rows[s]), key=lambda pair: pair)
    at = np.flatnonzero(np.array(rows, np.int64))
    return RowReadings(
        np.array([s for s, _ in kept], np.int64), np.zeros(len(kept), np.int64),
        np.array([v for _, v in kept], np.uint64), sample, at, np.array(rows, np.int64)[at],
    )  # fmt: skip


@settings(deadline=None)
@given(reads, reads, counts, counts, st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 3]))
def test_it_says_what_the_rules_say_read_out_loud(
    mine: list[tuple[int, int]], theirs: list[tuple[int, int]], rows: list[int], others: list[int], one: int, two: int
) -> None:
    run, expected = readings(mine, rows, one), readings(theirs, others, two)
    found = beside(run, expected)
    sample = int(np.lcm(one, two))
    both = [step for step in range(STEPS) if rows[step] and others[step]]
    compared = same = 0
    told: list[int] = []
    wrong: list[int] = []
    for step in both:
        own, other = (
            Counter(int(h) for s, h in zip(r.steps, r.hashes, strict=True) if s == step and int(h) % sample == 0)
            for r in (run, expected)
        )
        compared, same = compared + own.total(), same + (own & other).total()
        told += [step] if own or other else []
        surplus = rows[step] - others[step]
        if (surplus <= 0 and own - other) or (surplus >= 0 and other - own):
            wrong.append(step)
    differs = wrong[0] if wrong else None
    before = [step for step in both if differs is None or step < differs]
    agreed = [step for step in told if differs is None or step < differs]
    assert (found.steps, found.told, found.compared, found.same) == (len(both), len(told), compared, same)
    assert (found.differs, found.wrong_steps) == (differs, len(wrong))
    assert found.through == (before[-1] if before else None)
    assert found.agreed == (agreed[-1] if agreed else None)
    assert found.partly == sum(rows[step] < others[step] for step in both)


@settings(deadline=None)
@given(reads, counts, st.lists(st.tuples(reads, st.integers(0, STEPS)), max_size=6), st.data())
def test_a_run_that_grows_or_goes_back_is_as_read_at_once(
    theirs: list[tuple[int, int]], others: list[int], arrivals: list[Any], data: st.DataObject
) -> None:
    expected, watch, mine, rows = readings(theirs, others), RowsBeside(), list[tuple[int, int]](), [0] * STEPS
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(same_rows, "OPEN", 3)
        for more, back in arrivals:
            mine = [(s, v) for s, v in mine if s < back] if data.draw(st.booleans()) else mine  # a rewind, or late rows
            mine = mine + more
            rows = [max(known, int(any(s == step for s, _ in more))) for step, known in enumerate(rows)]
            run = readings(mine, rows)
            restart = data.draw(st.integers(0, STEPS))
            assert watch.find(run, expected, restart, None, None) == beside(run, expected, restart)


def order(steps: int = 400, each: int = 2, seed: int = 0) -> RowReadings:
    numbers = np.random.default_rng(seed).permutation(steps * each).astype(np.uint64)
    return RowReadings(
        np.repeat(np.arange(1, steps + 1), each), np.zeros(steps * each, np.int64), numbers, 1,
        np.arange(1, steps + 1), np.full(steps, each),
    )  # fmt: skip


def shifted(read: RowReadings, start: int, by: int) -> RowReadings:
    """From behind step `start` on, what is expected `by` steps later."""
    steps = np.where(read.steps > start + max(by, 0), read.steps - by, read.steps)
    drop = (read.steps > start) & (read.steps <= start + by) if by > 0 else np.zeros(len(steps), bool)
    again = np.flatnonzero((read.steps > start + by) & (read.steps <= start)) if by < 0 else np.zeros(0, np.int64)
    at, hashes = np.append(steps[~drop], read.steps[again] - by), np.append(read.hashes[~drop], read.hashes[again])
    keep = np.argsort(at, kind="stable")
    last = int(read.seen_steps[-1]) - max(by, 0)
    keep = keep[(at[keep] <= last)]
    return RowReadings(
        at[keep], np.zeros(len(keep), np.int64), hashes[keep], 1, np.arange(1, last + 1), np.full(last, 2)
    )  # fmt: skip


@pytest.mark.parametrize("by", [1, 3, 50, -1, -7])
def test_shifts_are_told_with_their_side(by: int) -> None:
    found = beside(shifted(order(), 200, by), order(), restart=200)
    assert (found.relation, found.shift, found.differs, found.agreed) == ("shifted", by, 201, 200)
    assert found.since == (201, 201)


def test_rows_of_a_further_pass_are_placed_by_the_nearest() -> None:
    one, two = order(200), order(200, seed=1)
    twice = RowReadings(
        np.append(one.steps, two.steps + 200), np.zeros(800, np.int64), np.append(one.hashes, two.hashes), 1,
        np.arange(1, 401), np.full(400, 2),
    )  # fmt: skip
    found = beside(shifted(twice, 300, 1), twice, restart=300)
    assert (found.relation, found.shift, found.differs) == ("shifted", 1, 301)


def test_another_order_of_a_covered_part_and_other_rows() -> None:
    first = order(400)
    tenth = replace(
        first, steps=first.steps[:80], hosts=first.hosts[:80], hashes=first.hashes[:80],
        seen_steps=first.seen_steps[:40], seen_rows=first.seen_rows[:40],
    )  # fmt: skip
    run = order(400, seed=5)
    assert beside(run, tenth, data=DeclaredData(800)).relation in ("other order", "other rows")
    assert beside(run, first).relation == "other order"
    assert beside(replace(run, hashes=run.hashes + np.uint64(10**6)), first).relation == "other rows"
    few = replace(run, steps=run.steps[:4], hosts=run.hosts[:4], hashes=run.hashes[:4])
    assert beside(few, first).relation == "not told"
    assert beside(run, replace(first, seen_steps=first.seen_steps + 10**6)).relation == "not told"


def test_a_view_without_either_side_says_nothing() -> None:
    empty = RunView({}, {}, {}, [Segment(0, 0.0, 1)])
    assert find(empty) is None
    assert find(replace(empty, rows=order())) is None
    cache = LevelCache()
    both = replace(empty, rows=order(), expected_rows=order())
    assert find(both, cache) == find(both)
    assert find(both, cache) == find(both)
