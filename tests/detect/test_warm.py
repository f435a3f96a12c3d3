"""What the rules keep between judgements changes no answer: equal bit by bit, whatever arrives in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.compare.growing import Growing, same_bits
from service.detect.cache import LevelCache
from service.detect.engine import evaluate
from service.detect.inputs import RowReadings, RunView, Segment, Series

from .scenarios import HELD, TRAIN

N = 9_000
PER_STEP = 1024.0
NORM = "optim/grad_norm"
RATE = "optim/learning_rate"
_rng = np.random.default_rng(42)
STEPS = np.arange(1, N + 1)
BATCH = _rng.normal(0.0, 0.03, N)
CURVE = 2.0 + 0.9 * (STEPS / 10_000.0 + 1.0) ** -0.35
SAME = CURVE + BATCH + _rng.normal(0.0, 0.001, N)
OTHER = CURVE + _rng.normal(0.0, 0.03, N)
NORMS = np.exp(_rng.normal(-1.0, 0.1, N) + BATCH)


def as_series(steps: Any, values: Any) -> Series:
    steps = np.asarray(steps, np.int64)
    return Series(steps, steps * PER_STEP, np.asarray(values, np.float64))


REFERENCE = {
    TRAIN: as_series(STEPS, CURVE + BATCH),
    NORM: as_series(STEPS, NORMS * 1.01),
    HELD: as_series(STEPS[499::500], 2.6 + _rng.normal(0.0, 0.002, N // 500)),
    RATE: as_series(STEPS, 3e-4 / (1.0 + STEPS / N)),
}
SIBLINGS = [{TRAIN: as_series(STEPS, CURVE + BATCH + _rng.normal(0.0, 0.001, N))} for _ in range(4)]

more = st.tuples(st.just("more"), st.integers(1, 1500), st.sampled_from(["same", "other", "drift"]))
operation = st.one_of(
    more,
    more,
    more,
    st.tuples(st.just("rewind"), st.integers(0, 1500), st.integers(1, 300)),
    st.tuples(st.just("replay"), st.integers(100, 1500), st.integers(20, 400)),
    st.tuples(st.just("late"), st.integers(0, 3000), st.sampled_from([2.5, float("nan"), float("inf")])),
    st.tuples(st.just("gap"), st.integers(0, 3000), st.integers(1, 40)),
    st.tuples(st.just("start")),
    st.tuples(st.just("rows"), st.integers(0, 200)),
)


@dataclass
class Run:
    """A run's points by step, and its trainer starts; the rows of every fifth step."""

    points: dict[int, float] = field(default_factory=dict[int, float])
    starts: list[int] = field(default_factory=lambda: [0])
    behind: int = 0  # steps by which the row readings are behind the losses
    kept: dict[str, tuple[Growing[np.int64], Growing[np.float64], Growing[np.float64]]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return max(self.points, default=0)

    def act(self, what: str, *how: Any) -> None:
        last = self.last
        if what == "more":
            count, kind = how
            source = OTHER if kind == "other" else SAME
            shift = -0.02 if kind == "drift" else 0.0
            for step in range(last + 1, min(last + count, N) + 1):
                self.points[step] = float(source[step - 1] + shift)
        elif what == "rewind":
            back, count = how
            self._restart(max(last - back, 0))
            self.act("more", count, "same")
        elif what == "replay":
            lag, count = how
            self._restart(last)
            for step in range(last + 1, min(last + count, N) + 1):
                self.points[step] = self.points.get(step - lag, 2.0) - 0.01
        elif what == "start":
            self._restart(last)
        elif what == "rows":
            self.behind = how[0]
        elif what == "late" and last - how[0] > 0:
            self.points[last - how[0]] = how[1]
        elif what == "gap":
            for step in range(max(last - how[0], 2), max(last - how[0], 2) + how[1]):
                self.points.pop(step, None)

    def _restart(self, at: int) -> None:
        self.points = {step: value for step, value in self.points.items() if step <= at}
        self.starts = [s for s in self.starts if s <= at] + ([at] if at > 0 else [])

    def view(self, *, growing: bool) -> RunView:
        steps = np.array(sorted(self.points), np.int64)
        at = steps - 1
        held = steps[steps % 500 == 0]
        metrics = {
            TRAIN: (steps, np.array([self.points[step] for step in steps.tolist()])),
            NORM: (steps, NORMS[at]),
            HELD: (held, 2.6 + np.sin(held)),
            RATE: (steps, 3e-4 / (1.0 + steps / N) * np.where(steps > 5_000, 1.05, 1.0)),
        }
        series = {m: self._grown(m, *pair) if growing else as_series(*pair) for m, pair in metrics.items()}
        segments = [Segment(start, float(i), 1) for i, start in enumerate(self.starts)]
        return RunView(
            {m: s for m, s in series.items() if len(s)}, REFERENCE, {}, segments, "r", "1", HELD, siblings=SIBLINGS,
            rows=self._rows(steps[steps <= self.last - self.behind]),
        )  # fmt: skip

    def _rows(self, seen: Any) -> RowReadings:
        at = seen[seen % 5 == 0]
        hashes = np.array([self.points[step] for step in at.tolist()]).view(np.uint64)  # a batch read again is the same
        return RowReadings(at, np.zeros(len(at), np.int64), hashes, 1_024, seen, np.full(len(seen), 512))

    def _grown(self, metric: str, steps: Any, values: Any) -> Series:
        """As a process that reads on hands them out: arrays that go on where those before ended."""
        new = as_series(steps, values)
        old = self.kept.get(metric)
        if old is None:
            grown = (Growing(new.steps), Growing(new.tokens), Growing(new.values))
        else:
            keep = min(same_bits(old[0].array, new.steps), same_bits(old[2].array, new.values))
            grown = (
                old[0].grown(keep, new.steps[keep:]),
                old[1].grown(keep, new.tokens[keep:]),
                old[2].grown(keep, new.values[keep:]),
            )
        self.kept[metric] = grown
        return Series(grown[0].array, grown[1].array, grown[2].array)


@given(st.lists(operation, min_size=2, max_size=9), st.booleans())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_warm_cache_judges_like_none(operations: list[Any], growing: bool) -> None:
    reference, run = LevelCache(), Run()
    warm = reference.of_a_run()
    run.act("more", 1500, "same")
    evaluate(run.view(growing=growing), warm)
    for operation in operations:
        run.act(*operation)
        found = evaluate(run.view(growing=growing), warm)
        anew = evaluate(run.view(growing=False), reference.of_a_run())
        assert [repr(j) for j in found] == [repr(j) for j in anew], operation


def test_a_long_run_judged_bit_by_bit_is_judged_as_at_once() -> None:
    run, warm = Run(), LevelCache()
    for _ in range(9):
        run.act("more", 700, "same")
        found = evaluate(run.view(growing=True), warm)
    run.act("replay", 1200, 400)
    found = evaluate(run.view(growing=True), warm)
    assert {j.rule for j in found if j.state == "yes"} >= {"replayed_batches"}
    for _ in range(4):
        run.act("more", 90, "drift")
        found = evaluate(run.view(growing=True), warm)
    assert [repr(j) for j in found] == [repr(j) for j in evaluate(run.view(growing=False))]
