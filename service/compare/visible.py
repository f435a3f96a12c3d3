"""What a reference can show: the smallest gap that a sequential test would find, window by window of its tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .align import Floats, Ints, Level, align
from .gap import raw_blocks

PROBES = 8  # places per block at which the reference's level is looked up
PATHS = 400  # healthy wanders tried, the same in every call
PERSISTENCE = 0.85  # of healthy wander, from block to block
HALVINGS = 12
MOST_BLOCKS = 400  # of a window that are looked at: a gap that is not found in so many is taken not to be found


@dataclass(frozen=True, slots=True)
class Chart:
    """A sequential test as its blocks see it, arrays (m,): excess over `limit` in units of `sd`, at most `most` of it
    from one block, is summed since its last low, and `alarm` of it is an alarm."""

    limit: Floats
    sd: Floats
    alarm: float
    most: float


@dataclass(frozen=True, slots=True)
class BlockErrors:
    """Errors of block means that a run would have beside a reference, arrays (m,): block ends in tokens, `own` (step
    noise), `level` (the reference's level; 0 where the run meets its points one by one), reference points `inside`."""

    last_tokens: Floats
    own: Floats
    level: Floats
    inside: Ints

    @property
    def se(self) -> Floats:
        """Both together."""
        return np.hypot(self.own, self.level)


@dataclass(frozen=True, slots=True)
class Visible:
    """Per window (k,), ascending: its share of the reference's tokens `start` … `end`, the gap through the whole window
    that is found in `half` of all runs, and in 95 % of them (`sure`), and the reference's points in the window."""

    start: Floats
    end: Floats
    half: Floats
    sure: Floats
    points: Ints

    def at(self, place: float) -> int:
        """Index of the window at a share of the reference's tokens."""
        return int(np.clip(np.searchsorted(self.end, place), 0, len(self.end) - 1))


@dataclass(frozen=True, slots=True)
class _Probes:
    steps: Ints
    tokens: Floats
    values: Floats


def block_errors(reference: Level, tokens_per_step: float, window: int, noise_sd: float) -> BlockErrors:
    """Errors of the block means of a run that logs every step over the whole reference, blocks of `window` steps."""
    first, last = reference.points[0], reference.points[-1]
    blocks = int((last - first) // (window * tokens_per_step))
    spacing = window / PROBES
    at = np.arange(blocks * PROBES) * spacing + spacing / 2.0
    tokens = first + (at + 0.37) * tokens_per_step  # beside the reference's points: no probe meets one by chance
    probes = align(_Probes(np.arange(1, len(at) + 1), tokens, np.zeros(len(at))), reference)
    raw = raw_blocks(probes, PROBES, 1)
    edges: Floats = first + window * tokens_per_step * np.arange(1, len(raw) + 1)
    inside: Ints = np.diff(np.searchsorted(reference.points, np.append(first, edges)))
    dense = inside >= window / 1.5
    own = noise_sd * np.sqrt(np.where(dense, 2.0, 1.0) / window)
    return BlockErrors(edges, own, np.where(dense, 0.0, raw.level_se), inside)


def smallest_gaps(errors: BlockErrors, chart: Chart, wander_sd: float, reference: Level, windows: int = 50) -> Visible:
    """The smallest gaps that `chart` finds, in equal windows of the reference's tokens.

    By simulation with a fixed seed: healthy wander is AR(1) over blocks, the level's error is one for a window, step
    noise is new in each block; for each of 400 such paths the least constant gap that leads to an alarm is halved in.
    """
    first, last = reference.points[0], reference.points[-1]
    edges: Floats = np.linspace(float(first), float(last), windows + 1)
    rng = np.random.default_rng(0)
    cuts: Ints = np.searchsorted(errors.last_tokens, edges[1:], side="right")
    starts: Ints = np.concatenate((np.zeros(1, np.int64), cuts[:-1]))
    cuts = np.minimum(cuts, starts + MOST_BLOCKS).astype(np.int64)
    half, sure = np.full(windows, np.inf), np.full(windows, np.inf)
    longest = int((cuts - starts).max(initial=0))
    wander = wander_sd * _persistent(rng, longest)
    fresh, shared = rng.normal(size=(PATHS, longest)), rng.normal(size=(PATHS, 1))
    for i, (a, b) in enumerate(zip(starts, cuts, strict=True)):
        if b > a:
            n = b - a
            path = wander[:, :n] + fresh[:, :n] * errors.own[a:b] + shared * errors.level[a:b]
            needed = _least_gap(path, chart.limit[a:b], chart.sd[a:b], chart)
            half[i], sure[i] = np.median(needed), np.quantile(needed, 0.95)
    points: Ints = np.diff(np.searchsorted(reference.points, edges, side="left"))
    shares: Floats = np.linspace(0.0, 1.0, windows + 1)
    return Visible(shares[:-1], shares[1:], half, sure, points)


def _persistent(rng: np.random.Generator, length: int) -> Floats:
    out = rng.normal(size=(PATHS, length))
    for i in range(1, length):
        out[:, i] = PERSISTENCE * out[:, i - 1] + np.sqrt(1.0 - PERSISTENCE**2) * out[:, i]
    return out


def _least_gap(path: Floats, limit: Floats, sd: Floats, chart: Chart) -> Floats:
    """Per path (p, m): the least constant gap that leads to an alarm, (p,)."""
    low = np.zeros(len(path))
    high = np.full(len(path), float(limit.max() + (chart.alarm + 6.0) * sd.max() + np.abs(path).max()))
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        total = np.cumsum(np.minimum((path + middle[:, None] - limit) / sd, chart.most), axis=1)
        lowest = np.minimum.accumulate(np.concatenate((np.zeros((len(path), 1)), total), axis=1), axis=1)[:, :-1]
        found = (total - np.minimum(lowest, total)).max(axis=1) >= chart.alarm
        low, high = np.where(found, low, middle), np.where(found, middle, high)
    return high
