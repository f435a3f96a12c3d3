"""The rows of a run beside those that it is expected to read at the same steps: the same, shifted, in another order, or
other rows; and since which step. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.compare.growing import same_bits

from .cache import LevelCache
from .inputs import DeclaredData, Ints, RowReadings, RunView

Relation = Literal["same", "same again", "shifted", "other order", "other rows", "not told"]
Hashes = NDArray[np.uint64]

LOOK = 64  # newest sampled readings whose place in the expected order is looked up
LEAST = 5  # readings before anything is said of that place
MOST = 0.5  # of the readings looked at
ALL = 0.95  # of them stand where they are expected: the same again
OPEN = 4_096  # newest sampled readings that are compared anew each time: hosts report late
MOST_COPIES = 64  # places of one row in the expected order that are looked at


@dataclass(frozen=True, slots=True)
class Beside:
    """Two readings at the `steps` that both report, `told` of them by a hash: of `compared` hashes of the run `same`
    were expected at the same step, 1 row in `sample`.

    `through`: the last step up to which all are the same (None: not even the first); `differs`: the first step at which
    they are not (None: nowhere), `wrong_steps` in all; `agreed`: the last step before that which a hash shows to be the
    same, `since`: from behind it up to `differs`. Steps that the run reports in part (`partly` of them) are held beside
    what they tell.

    `relation` is of the newest readings, `looked` of them, since `differs` and the newest start of the trainer: `known`
    is the share of them whose row is expected at any step, `steady` of those that lie `shift` steps away (> 0: the run
    reads what is expected so many steps later). `not told`: fewer than 5."""

    sample: int
    steps: int
    told: int
    compared: int
    same: int
    through: int | None
    differs: int | None
    wrong_steps: int = 0
    partly: int = 0
    agreed: int | None = None
    since: tuple[int, int] | None = None
    relation: Relation = "not told"
    shift: int = 0
    steady: float = 0.0
    known: float = 0.0
    looked: int = 0
    look_from: int = 0


def find(view: RunView, cache: LevelCache | None = None) -> Beside | None:
    """The run's rows beside its reference's; None where one of them sent none. With the `cache` of a run that grows
    only what is new is compared."""
    if view.rows is None or view.expected_rows is None:
        return None
    watch = RowsBeside() if cache is None else cache.kept(RowsBeside)
    restart = max((s.start_step for s in view.segments), default=0)
    return watch.find(view.rows, view.expected_rows, restart, view.data, cache)


def beside(run: RowReadings, expected: RowReadings, restart: int = 0, data: DeclaredData | None = None) -> Beside:
    """The rows of a run beside those of another one, or those it should read. Hosts do not matter: a batch is the same
    on however many it lies. `restart`: updates made at the newest start of the trainer."""
    return RowsBeside().find(run, expected, restart, data, None)


@dataclass(frozen=True, slots=True)
class _Sum:
    """What was counted of the steps before `upto`. `agreed`: the last one that a hash showed to be the same before the
    first that differs."""

    upto: int = 0
    steps: int = 0
    told: int = 0
    compared: int = 0
    same: int = 0
    partly: int = 0
    wrong: int = 0
    through: int | None = None
    differs: int | None = None
    agreed: int | None = None


@dataclass(slots=True)
class RowsBeside:
    """The rows of one run, while it grows, beside those that are expected."""

    _run: RowReadings | None = None
    _expected: RowReadings | None = None
    _sum: _Sum = field(default_factory=_Sum)

    def find(
        self, run: RowReadings, expected: RowReadings, restart: int, data: DeclaredData | None, cache: LevelCache | None
    ) -> Beside:
        """See `beside`."""
        sample = int(np.lcm(run.sample, expected.sample))
        self._keep(run, expected)
        n = len(run.steps)
        settle = int(run.steps[n - OPEN]) if n > OPEN else 0
        if settle > self._sum.upto:
            self._sum = _add(self._sum, run, expected, sample, settle)
        total = _add(self._sum, run, expected, sample, None)
        self._run, self._expected = run, expected
        since = None
        if total.differs is not None:
            since = (total.differs if total.agreed is None else total.agreed + 1, total.differs)
            if total.agreed is None and len(run.seen_steps):
                since = (min(int(run.seen_steps[0]), total.differs), total.differs)
        begin = max(restart + 1, total.differs or 0)
        looked, known, shift, steady = _place(run, expected, sample, begin, cache)
        return Beside(
            sample, total.steps, total.told, total.compared, total.same, total.through, total.differs, total.wrong,
            total.partly, total.agreed, since, _relation(total, looked, known, shift, steady, expected, data), shift,
            steady, known, looked, begin,
        )  # fmt: skip

    def _keep(self, run: RowReadings, expected: RowReadings) -> None:
        """Forget what was counted if it may be another now."""
        old = self._run
        if old is None or self._expected is not expected or old.sample != run.sample:
            self._sum = _Sum()
            return
        same = min(same_bits(old.steps, run.steps), same_bits(old.hashes, run.hashes))
        seen = min(same_bits(old.seen_steps, run.seen_steps), same_bits(old.seen_rows, run.seen_rows))
        changed = [
            int(part[at]) for at, parts in ((same, (old.steps, run.steps)), (seen, (old.seen_steps, run.seen_steps)))
            for part in parts if len(part) > at
        ]  # fmt: skip
        if min(changed, default=self._sum.upto) < self._sum.upto:
            self._sum = _Sum()


def _add(before: _Sum, run: RowReadings, expected: RowReadings, sample: int, upto: int | None) -> _Sum:
    """The sum with the steps from `before.upto` up to (not with) `upto` added."""
    mine_at, mine_rows = _seen(run, before.upto, upto)
    theirs_at, theirs_rows = _seen(expected, before.upto, upto)
    both, at, other_at = np.intersect1d(mine_at, theirs_at, assume_unique=True, return_indices=True)
    surplus = mine_rows[at] - theirs_rows[other_at]  # < 0: some host has not reported
    steps, hashes = _hashes(run, sample, both, before.upto, upto)
    other_steps, other_hashes = _hashes(expected, sample, both, before.upto, upto)
    key_steps, own, others = _counted(steps, hashes, other_steps, other_hashes)
    more = surplus[np.searchsorted(both, key_steps)] if len(both) else np.zeros(0, np.int64)
    wrong = ((own > others) & (more <= 0)) | ((own < others) & (more >= 0))
    told, wrong_steps = np.unique(key_steps), np.unique(key_steps[wrong])
    differs, agreed, through = before.differs, before.agreed, before.through
    if differs is None:
        differs = int(wrong_steps[0]) if len(wrong_steps) else None
        right = told if differs is None else told[told < differs]
        clean = both if differs is None else both[both < differs]
        agreed = int(right[-1]) if len(right) else agreed
        through = int(clean[-1]) if len(clean) else through
    return _Sum(
        before.upto if upto is None else upto, before.steps + len(both), before.told + len(told),
        before.compared + len(steps), before.same + int(np.minimum(own, others).sum()),
        before.partly + int(np.count_nonzero(surplus < 0)), before.wrong + len(wrong_steps), through, differs, agreed,
    )  # fmt: skip


def _seen(readings: RowReadings, first: int, upto: int | None) -> tuple[Ints, Ints]:
    low = int(np.searchsorted(readings.seen_steps, first))
    high = len(readings.seen_steps) if upto is None else int(np.searchsorted(readings.seen_steps, upto))
    return readings.seen_steps[low:high], readings.seen_rows[low:high]


def _hashes(readings: RowReadings, sample: int, both: Ints, first: int, upto: int | None) -> tuple[Ints, Hashes]:
    """Steps and hashes at some steps, of those hashes that a sample of both holds."""
    low = int(np.searchsorted(readings.steps, first))
    high = len(readings.steps) if upto is None else int(np.searchsorted(readings.steps, upto))
    steps, hashes = readings.steps[low:high], readings.hashes[low:high]
    keep = _sampled(hashes, sample) & np.isin(steps, both, assume_unique=False)
    return steps[keep], hashes[keep]


def _sampled(hashes: Hashes, sample: int) -> NDArray[np.bool_]:
    return hashes % np.uint64(sample) == 0 if sample < 2**64 else hashes == 0


def _counted(steps: Ints, hashes: Hashes, other_steps: Ints, other_hashes: Hashes) -> tuple[Ints, Ints, Ints]:
    """Of every (step, hash) its step, and how often either side has it."""
    all_steps, all_hashes = np.concatenate((steps, other_steps)), np.concatenate((hashes, other_hashes))
    order = np.lexsort((all_hashes, all_steps))
    all_steps, all_hashes, mine = all_steps[order], all_hashes[order], (order < len(steps)).astype(np.int64)
    if len(order) == 0:
        return all_steps, mine, mine
    head = np.ones(len(order), np.bool_)
    head[1:] = (all_steps[1:] != all_steps[:-1]) | (all_hashes[1:] != all_hashes[:-1])
    starts = np.flatnonzero(head)
    own = np.add.reduceat(mine, starts)
    return all_steps[starts], own, np.diff(np.append(starts, len(order))) - own


def _place(
    run: RowReadings, expected: RowReadings, sample: int, begin: int, cache: LevelCache | None
) -> tuple[int, float, int, float]:
    """Where the newest readings since step `begin` stand in the expected order: how many were looked at, the share that
    stands anywhere, the commonest distance in steps and the share that has it."""
    last = int(expected.seen_steps[-1]) if len(expected.seen_steps) else -1
    low, high = np.searchsorted(run.steps, (begin, last + 1))
    steps, hashes = run.steps[low:high], run.hashes[low:high]
    keep = np.flatnonzero(_sampled(hashes, sample))[-LOOK:]
    steps, hashes = steps[keep], hashes[keep]
    if len(steps) == 0:
        return 0, 0.0, 0, 0.0
    made = _by_hash(expected) if cache is None else cache.once(("rows by hash", expected), lambda: _by_hash(expected))
    known, places = made
    left, right = np.searchsorted(known, hashes, side="left"), np.searchsorted(known, hashes, side="right")
    met = np.flatnonzero(right > left)
    if len(met) == 0:
        return len(steps), 0.0, 0, 0.0
    away: Ints = np.full(len(met), 2**62, np.int64)
    for copy in range(min(int((right - left).max()), MOST_COPIES)):
        at = np.minimum(left[met] + copy, right[met] - 1)
        here = places[at] - steps[met]
        away = np.where(np.abs(here) < np.abs(away), here, away)
    values, counts = np.unique(away, return_counts=True)
    best = int(np.lexsort((np.abs(values), -counts))[0])
    return len(steps), len(met) / len(steps), int(values[best]), float(counts[best]) / len(steps)


def _by_hash(expected: RowReadings) -> tuple[Hashes, Ints]:
    order = np.argsort(expected.hashes, kind="stable")
    return expected.hashes[order], expected.steps[order]


def _covered(expected: RowReadings, data: DeclaredData | None) -> float:
    """The share of the data set that the expected rows hold."""
    if data is None or data.rows <= 0:
        return 1.0
    return min(len(np.unique(expected.hashes)) * expected.sample / data.rows, 1.0)


def _relation(
    total: _Sum, looked: int, known: float, shift: int, steady: float, expected: RowReadings, data: DeclaredData | None
) -> Relation:
    if total.differs is None:
        return "same" if total.told else "not told"
    if looked < LEAST:
        return "not told"
    if shift and steady >= MOST:
        return "shifted"
    if not shift and steady >= ALL:
        return "same again"
    placed = 0.0 if shift else steady  # of the rest: are they known from elsewhere?
    return "other order" if known - placed >= MOST * (1.0 - placed) * _covered(expected, data) else "other rows"
