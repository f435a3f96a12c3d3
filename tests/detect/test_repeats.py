"""Repeated rows of a run that grows: what is kept of it never changes an answer, whatever comes in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.detect import repeats, row_charts, rows
from service.detect.cache import LevelCache
from service.detect.inputs import DeclaredData, RowReadings, RuleSetting, RunView, Segment
from service.detect.repeats import Repeats


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles and windows so small that a short run has many."""
    for module in (row_charts, rows):
        monkeypatch.setattr(module, "TILE", 64)
        monkeypatch.setattr(module, "OPEN", 32)
    monkeypatch.setattr(repeats, "WINDOW_READINGS", 300)
    monkeypatch.setattr(rows, "BACKGROUND_READINGS", 500)


def one_by_one(hashes: list[int], legal: list[bool]) -> list[tuple[int, int, int, int, bool]]:
    """Of every reading whose hash was read before: place, ordinal, previous and first place, and whether it counts."""
    places: dict[int, list[int]] = {}
    counted: set[tuple[int, int]] = set()
    found: list[tuple[int, int, int, int, bool]] = []
    for at, value in enumerate(hashes):
        before = places.setdefault(value, [])
        if before:
            key = (value, at // repeats.WINDOW_READINGS)
            counts = not legal[at] and key not in counted
            if counts:
                counted.add(key)
            found.append((at, len(before), before[-1], before[0], counts))
        before.append(at)
    return found


@given(
    st.lists(st.lists(st.integers(0, 60), max_size=120), min_size=1, max_size=8),
    st.sampled_from([None, 40, 200]), st.sampled_from([1, 3]),
)  # fmt: skip
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_repeat_is_what_a_look_at_all_before_it_gives(
    parts: list[list[int]], declared: int | None, passes: int
) -> None:
    data = None if declared is None else DeclaredData(declared, passes)
    found, hashes = Repeats(), list[int]()
    for part in parts:
        hashes += part
        n = len(hashes)
        at = np.arange(1, n + 1)
        readings = RowReadings(at, np.zeros(n, np.int64), np.array(hashes, np.uint64), 1, at, np.ones(n, np.int64))
        found.advance(readings, data)
        ordinals = [hashes[:i].count(value) for i, value in enumerate(hashes)]
        legal = [
            declared is not None and i + 1 >= ordinal * declared and (ordinal < passes or i < passes * declared)
            for i, ordinal in enumerate(ordinals)
        ]
        columns = (found.where, found.ordinal, found.previous, found.first, found.counted)
        told = list(zip(*(column.array.tolist() for column in columns), strict=True))
        assert told == one_by_one(hashes, legal)


@dataclass
class Rows:
    """A run's readings by step and host, and what was declared."""

    read: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])  # step, host, hash
    next: int = 10_000
    data: DeclaredData | None = None
    limit: float | None = None
    starts: list[int] = field(default_factory=list[int])

    def act(self, what: str, count: int, how: int) -> None:
        last = self.read[-1][0] if self.read else 0
        if what == "fresh":
            for i in range(count):
                self.read.append((last + 1 + i // 4, i % 3, self.next + i))
            self.next += count
        elif what == "replay" and self.read:
            self.starts.append(last)
            for i, (_, host, value) in enumerate(self.read[how % len(self.read) :][:count]):
                self.read.append((last + 1 + i // 4, host, value))
        elif what == "drawn" and self.read:
            pool = [value for _, _, value in self.read]
            self.read += [(last + 1 + i // 4, i % 3, pool[(how + 7 * i) % len(pool)]) for i in range(count)]
        elif what == "rewound":
            self.read = [one for one in self.read if one[0] <= last - how % 60]
            self.starts.append(max(last - how % 60, 0))
        elif what == "late" and last > 2:
            self.read.append((max(last - how % 40, 1), 5, self.next))
            self.next += 1
            self.read.sort(key=lambda one: one[0])
        elif what == "declared":
            self.data = DeclaredData(how + 50, 2.0, 1 + how % 2) if how % 3 else None
        elif what == "set":
            self.limit = 1e-4 * (1 + how % 50)

    def view(self) -> RunView:
        steps, hosts, hashes = (np.array([one[i] for one in self.read]) for i in range(3))
        seen = np.arange(1, (int(steps[-1]) if len(steps) else 0) + 2)
        setting = {} if self.limit is None else {"repeated_rows": RuleSetting(self.limit, "set")}
        readings = RowReadings(
            steps.astype(np.int64), hosts.astype(np.int64), hashes.astype(np.uint64), 8, seen, np.full(len(seen), 4)
        )
        return RunView({}, {}, {}, [Segment(s, 0.0, 1) for s in (0, *self.starts)], rows=readings, data=self.data,
                       settings=setting)  # fmt: skip


action = st.tuples(
    st.sampled_from(["fresh", "fresh", "fresh", "replay", "drawn", "rewound", "late", "declared", "set"]),
    st.integers(1, 400), st.integers(0, 1000),
)  # fmt: skip


@given(st.lists(action, min_size=2, max_size=14))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_run_that_grew_is_judged_like_one_that_is_read_at_once(actions: list[Any]) -> None:
    run, cache = Rows(), LevelCache()
    run.act("fresh", 300, 0)
    for one in actions:
        run.act(*one)
        view = run.view()
        assert repr(rows.find(view, cache)) == repr(rows.find(view)), one


def test_readings_that_are_out_of_order_are_put_in_order() -> None:
    run = Rows()
    run.act("fresh", 200, 0)
    run.act("replay", 100, 20)
    view = run.view()
    assert view.rows is not None
    order = np.random.default_rng(0).permutation(len(view.rows.steps))
    order = order[np.argsort(view.rows.steps[order], kind="stable")][::-1]
    mixed = replace(view.rows, steps=view.rows.steps[order], hosts=view.rows.hosts[order],
                    hashes=view.rows.hashes[order])  # fmt: skip
    found, plain = rows.find(replace(view, rows=mixed)), rows.find(view)
    assert found is not None
    assert plain is not None
    assert (found.repeats, found.distinct, found.onset) == (plain.repeats, plain.distinct, plain.onset)
