"""Drift of a run that reads the reference's batches: compared pair by pair, where the noise of a batch cancels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from service.compare.growing import Growing, same_bits
from service.compare.pairs import BLOCK, BLOCKS, SD_PER_LIMIT, Pool, block_means, changes, own_se, pool, white_se

from .beside import Whole, meet
from .cache import LevelCache
from .inputs import Floats, Ints, RunView, Series
from .order import OrderFinding, find
from .signals import TRAIN

Bools = NDArray[np.bool_]

FLOOR = 0.001  # nats: a smaller change is of no consequence, however surely it is seen
IN_A_ROW = 2  # entries beyond the limit, on one side, that open an episode: a single odd block of 25 opens nothing
BACK = 4  # entries back within half the limit that end it


@dataclass(frozen=True, slots=True)
class Moved:
    """A lasting change of the gap between entries: `first` is the first one beyond the limit, `alarm` the one that was
    certain, `end` the one that was certain of its end (None: open). `base`: the mean gap of the 100 pairs before."""

    side: str
    first: int
    alarm: int
    end: int | None
    base: float


@dataclass(frozen=True, slots=True)
class PairedDrift:
    """The paired gap, arrays (m,) with one entry per 25 pairs: `steps` (the last one that counts), `level` of the
    newest 100 pairs, `limit` of its change since the 100 before (NaN: not known yet). `runs`: siblings the limit rests
    on."""

    steps: Ints
    tokens: Floats
    level: Floats
    limit: Floats
    runs: int
    episodes: Sequence[Moved]

    @property
    def open(self) -> Moved | None:
        """The episode that holds now."""
        return self.episodes[-1] if self.episodes and self.episodes[-1].end is None else None

    @property
    def judged(self) -> bool:
        """Whether a change would show now."""
        return len(self.limit) > 0 and bool(np.isfinite(self.limit[-1]))

    def onset(self, episode: Moved) -> tuple[tuple[int, int], tuple[float, float]]:
        """Steps and tokens between which an episode began: from the pairs it is measured against to the first entry
        beyond the limit."""
        before = max(episode.first - BLOCKS, 0)
        steps = (int(self.steps[before]), int(self.steps[episode.first]))
        return steps, (float(self.tokens[before]), float(self.tokens[episode.first]))


def paired_drift(view: RunView, order: OrderFinding, cache: LevelCache) -> PairedDrift | None:
    """Judge a run whose order is the reference's now; None for another one, or with fewer than 200 pairs. Causal."""
    mine, theirs = view.metrics.get(TRAIN), view.reference.get(TRAIN)
    if order.answer != "same" or mine is None or theirs is None:
        return None
    reference = cache.reference_signal(TRAIN, theirs)
    if reference is None:
        return None
    expected = cache.pool(TRAIN, view, lambda: _pool(view, reference))
    return cache.kept(Drift).advance(mine, reference, expected, order.stretches[-1].first)


def _pool(view: RunView, reference: Whole) -> Pool:
    """The reference with those of its siblings that read the same batches from first to last."""
    same: list[Floats] = []
    for metrics in view.siblings:
        sibling = metrics.get(TRAIN)
        if sibling is None or len(sibling) == 0:
            continue
        order = find(RunView({TRAIN: sibling}, {TRAIN: reference.points}, {}, ()))
        if order.answer == "same" and len(order.stretches) == 1:
            beside = np.full(len(reference.points), np.nan)
            where, met = meet(sibling.tokens, reference.points, reference.spacing)
            at = np.arange(len(beside))[where]
            beside[at[met]] = sibling.values[met]
            same.append(beside)
    return pool(reference.points.values, same)


@dataclass(slots=True)
class Drift:
    """`PairedDrift` of a run that grows. Blocks lie on the reference's points, so that new pairs change none before."""

    _before: tuple[Series, Whole, Pool, int] | None = None
    _first: int = 0  # block of the reference's points that is the first of these
    _taken: int = 0  # points of the run that are in blocks
    _means: Growing[np.float64] = field(default_factory=lambda: Growing(np.zeros(0)))
    _noise: Growing[np.float64] = field(default_factory=lambda: Growing(np.zeros(0)))
    _level: Growing[np.float64] = field(default_factory=lambda: Growing(np.zeros(0)))
    _change: Growing[np.float64] = field(default_factory=lambda: Growing(np.zeros(0)))
    _limit: Growing[np.float64] = field(default_factory=lambda: Growing(np.zeros(0)))
    _episodes: list[Moved] = field(default_factory=list[Moved])
    _from: int = 0  # entry behind the last episode
    _scanned: int = 0  # entries that were looked at

    def advance(self, run: Series, reference: Whole, expected: Pool, since_step: int) -> PairedDrift | None:
        """As of now; None with fewer than 200 pairs."""
        before = self._before
        alike = before is not None and before[1] is reference and before[2] is expected and before[3] == since_step
        if before is None or not alike or not _begins(before[0], run):
            self._start(run, reference, since_step)
        self._before = (run, reference, expected, since_step)
        self._add_blocks(run, reference, expected)
        self._add_entries(reference, expected)
        self._scan()
        entries = len(self._level)
        if entries == 0:
            return None
        last, points = self._last(entries), reference.points
        return PairedDrift(points.steps[last], points.tokens[last], self._level.array, self._limit.array,
                           expected.runs, tuple(self._episodes))  # fmt: skip

    def _start(self, run: Series, reference: Whole, since_step: int) -> None:
        """Begin anew, with the first block whose pairs are all of equal batches."""
        self._taken = int(np.searchsorted(run.steps, since_step))
        token = float(run.tokens[self._taken]) - 0.5 * reference.spacing
        self._first = -(-int(np.searchsorted(reference.points.tokens, token)) // BLOCK)
        none = Growing(np.zeros(0))
        self._means = self._noise = self._level = self._change = self._limit = none
        self._episodes, self._from, self._scanned = [], 0, 0

    def _add_blocks(self, run: Series, reference: Whole, expected: Pool) -> None:
        values = run.values[self._taken :]
        if len(values) == 0:
            return
        where, met = meet(run.tokens[self._taken :], reference.points, reference.spacing)
        at: Ints = np.arange(len(reference.points))[where]
        begin = (self._first + len(self._means)) * BLOCK
        end = (int(at[-1]) + 1) // BLOCK * BLOCK
        if end <= begin:
            return
        inside = met & (at >= begin) & (at < end)
        gap = np.full(end - begin, np.nan)
        gap[at[inside] - begin] = values[inside] - expected.center[at[inside]]
        means, noise = block_means(np.where(np.isfinite(gap), gap, np.nan))
        self._means = self._means.grown(len(self._means), means)
        self._noise = self._noise.grown(len(self._noise), noise)
        self._taken += int(np.searchsorted(at, end))

    def _last(self, entries: int) -> Ints:
        """Of so many entries the place of the last pair among the reference's points."""
        return (self._first + 2 * BLOCKS + np.arange(entries)) * BLOCK - 1

    def _add_entries(self, reference: Whole, expected: Pool) -> None:
        done, means, noise = len(self._level), self._means.array, self._noise.array
        level, change = changes(means[done:])
        if len(level) == 0:
            return
        self._level, self._change = self._level.grown(done, level), self._change.grown(done, change)
        if expected.se is None:
            se = own_se(self._change.array, noise, reference.points.tokens[self._last(len(self._change))], done)
        else:
            first = self._first + done
            se = expected.se[first : first + len(level)]
            se = np.concatenate((se, np.full(len(level) - len(se), np.nan)))
            # Batches that begin to differ scatter more.
            se = np.where(np.isfinite(se), np.fmax(se, white_se(noise[done:])), np.nan)
        self._limit = self._limit.grown(done, np.maximum(SD_PER_LIMIT * se, FLOOR))

    def _scan(self) -> None:
        """Find where episodes begin and end among the entries that came since."""
        level, change, limit = self._level.array, self._change.array, self._limit.array
        while True:
            last = self._episodes[-1] if self._episodes else None
            if last is not None and last.end is None:
                start = max(last.alarm + 1, self._scanned - BACK + 1)
                end = _in_a_row(np.abs(level[start:] - last.base) <= limit[last.first] / 2.0, BACK)
                if end is None:
                    break
                self._episodes[-1] = replace(last, end=start + end)
                self._from = start + end + 1
                continue
            start = max(self._from, self._scanned - IN_A_ROW + 1)
            beyond, below = np.abs(change[start:]) > limit[start:], change[start:] < 0.0
            sides = (_in_a_row(beyond & below, IN_A_ROW), _in_a_row(beyond & ~below, IN_A_ROW))
            alarm = min((start + at for at in sides if at is not None), default=None)
            if alarm is None:
                break
            first = alarm - IN_A_ROW + 1
            side = "below" if change[first] < 0.0 else "above"
            self._episodes.append(Moved(side, first, alarm, None, float(level[first] - change[first])))
        self._scanned = len(level)


def _in_a_row(holds: Bools, many: int) -> int | None:
    """Index of the last of the first `many` that hold one after another."""
    if len(holds) < many:
        return None
    found = np.flatnonzero(np.lib.stride_tricks.sliding_window_view(holds, many).all(axis=1))
    return int(found[0]) + many - 1 if len(found) else None


def _begins(old: Series, new: Series) -> bool:
    n = len(old)
    same = min(same_bits(old.tokens, new.tokens), same_bits(old.values, new.values), same_bits(old.steps, new.steps))
    return same == n
