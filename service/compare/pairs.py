"""Comparing two runs that read the same batches: pair by pair, where the noise of a batch cancels.

What is left of the difference is small but not white: a nearly constant offset per run and a slow wander. So a change
of the gap is judged by how much such changes scatter, among sibling runs at the same step or in the run's own past, and
never by step noise over root n alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .noise import MAD_TO_SD

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 25  # pairs under one robust mean; longer means gain little against the wander
BLOCKS = 4  # before and after: a change is the mean of 100 pairs minus that of the 100 before
LEAST_PAIRS = 8  # under a block mean
LONG_MEMORY = 512  # entries, a power of two
MEMORY = 40  # changes of the run's own past that tell how much they scatter
MIN_PAST = 12
OWN_PAST_INFLATION = 1.3  # overlapping changes hold few independent ones: their spread is known to about 30 %
MIN_SIBLINGS = 3
THREE = 1.25  # wider beside three siblings: without it one of 792 healthy pairs of real reruns alarms, so none does
INDEPENDENT = 1.5  # changes of one run within seven entries that are independent: each is over eight blocks
SD_PER_LIMIT = 3.75


@dataclass(frozen=True, slots=True)
class PairedGap:
    """The gap of a run to its reference over equal batches, one entry per 25 pairs (m,), in the metric's unit.

    `steps`: the last step that counts. `level`: mean gap of the newest 100 pairs. `change`: that minus the mean of the
    100 before. `se`: standard deviation of `change` in healthy runs, NaN where it is not known yet. `runs`: how many
    siblings that rests on (0: on the run's own past). Entry i depends on pairs up to `steps[i]` only."""

    steps: Ints
    level: Floats
    change: Floats
    se: Floats
    runs: int

    @property
    def beyond(self) -> Floats:
        """|change| in units of what a healthy run stays within (3.75 sd): above 1 is a drift; NaN where not known."""
        return np.abs(self.change) / np.maximum(SD_PER_LIMIT * self.se, np.finfo(np.float64).tiny)

    @property
    def smallest(self) -> Floats:
        """The smallest change that would show at each entry (m,)."""
        return SD_PER_LIMIT * self.se

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class Pool:
    """What a run of the same batches is expected to lose, from a reference of n points and its siblings.

    `center` (n,): the loss per batch. `se`: standard deviation of a healthy run's change, one entry per 25 batches as
    in PairedGap, where enough siblings tell it; None: the run's own past must. `runs`: siblings it rests on."""

    center: Floats
    se: Floats | None
    runs: int


def pool(reference: Floats, siblings: Sequence[Floats] = ()) -> Pool:
    """The pool of a reference and its siblings of the same data order, each (n,), NaN where missing.

    With three siblings or more a run is compared with the median of reference and siblings, so that the reference's own
    wander is averaged out, and `se` is the root mean square of their own changes, each against the median of the
    others, at the same batches and three entries around: how far healthy runs scatter in that phase of training."""
    if len(siblings) < MIN_SIBLINGS:
        return Pool(reference, None, 0)
    runs = [reference, *siblings]
    # Causal: the siblings' changes are taken at the same entries, and they were complete before the run began.
    others = [changes(block_means(one - _median([*runs[:i], *runs[i + 1 :]]))[0])[1] for i, one in enumerate(runs)]
    square = _mean_known(np.stack(others) ** 2, axis=0)
    wide = np.concatenate((np.full(3, np.nan), square, np.full(3, np.nan)))
    around = np.lib.stride_tricks.sliding_window_view(wide, 7) if len(square) else np.zeros((0, 7))
    se = np.sqrt(_mean_known(around, axis=1))
    se *= 1.0 + 1.0 / float(np.sqrt(2.0 * INDEPENDENT * len(runs)))  # a spread of few runs is itself known badly
    se *= THREE if len(siblings) == 3 else 1.0
    return Pool(_median(runs), np.where(se > 0.0, se, np.nan), len(siblings))


def paired_gap(steps: Ints, run: Floats, reference: Floats, siblings: Sequence[Floats] = ()) -> PairedGap:
    """The paired gap. `run`, `reference` and each of `siblings` are (n,), parallel to `steps` (n,), NaN where missing.

    `se` comes from three siblings or more (see `pool`), else from the run's own past changes (see `own_se`)."""
    beside = pool(reference, siblings)
    means, noise = block_means(run - beside.center)
    level, change = changes(means)
    last = _last_steps(steps, len(change))
    se = own_se(change, noise, last) if beside.se is None else beside.se
    return PairedGap(last, level, change, se, beside.runs)


def own_se(change: Floats, noise: Floats, at: Floats | Ints, start: int = 0) -> Floats:
    """Standard deviation of a healthy change by the run's own past, for the entries from `start` on; NaN where fewer
    than 12 earlier changes are known. `noise` (blocks,) are the standard errors of the block means, `at` (n,) the
    tokens (or steps) that were trained on up to each change.

    The spread of the 40 changes that ended before the entry's newest 100 pairs began, the widest such spread of the
    last 512 entries (wander comes and goes), and never below what the scatter within 25 pairs gives. Past changes count
    by at / now: losses, and with them what healthy runs differ by, change with the logarithm of the tokens."""
    n = len(change)
    first = max(start - LONG_MEMORY, 0)
    now = np.maximum(np.asarray(at, np.float64), 1.0)
    padded = np.concatenate((np.full(MEMORY + BLOCKS, np.nan), change * now))[first:]
    past = np.lib.stride_tricks.sliding_window_view(padded, MEMORY)[: n - first]
    count = np.isfinite(past).sum(axis=1)
    spread = MAD_TO_SD * _row_median(np.abs(past), count)
    reach = 3.0 * spread[:, None]
    spread = np.maximum(spread, np.sqrt(_mean_known(np.clip(past, -reach, reach) ** 2, axis=1)))
    spread[count < MIN_PAST] = np.nan
    widest, reached = np.where(np.isfinite(spread), spread, 0.0), 1
    while reached < LONG_MEMORY:
        widest[reached:] = np.maximum(widest[reached:], widest[:-reached])
        reached *= 2
    se = OWN_PAST_INFLATION * np.fmax(widest / now[first:], white_se(noise[first:]))
    return np.where(np.isfinite(spread), se, np.nan)[start - first :]


def white_se(noise: Floats) -> Floats:
    """Standard error that the scatter within blocks alone gives each change, from the error of each block mean."""
    both = _mean_known(np.lib.stride_tricks.sliding_window_view(noise**2, BLOCKS), axis=1)
    return np.sqrt((both[BLOCKS:] + both[:-BLOCKS]) / BLOCKS)


def _row_median(rows: Floats, count: Ints) -> Floats:
    """Medians of the known values of each row; NaN without any."""
    ordered = np.sort(rows, axis=1)  # NaN last
    at = np.arange(len(rows))
    last = np.maximum(count - 1, 0)
    return (ordered[at, last // 2] + ordered[at, np.minimum(count // 2, rows.shape[1] - 1)]) / 2.0


def _mean_known(values: Floats, axis: int) -> Floats:
    """Means of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=axis)
    return np.where(count > 0, np.where(known, values, 0.0).sum(axis=axis) / np.maximum(count, 1), np.nan)


def _median(runs: Sequence[Floats]) -> Floats:
    table = np.stack(runs)
    known = np.isfinite(table).any(axis=0)
    middle = np.full(table.shape[1], np.nan)
    middle[known] = np.nanmedian(table[:, known], axis=0)
    return middle


def block_means(gap: Floats) -> tuple[Floats, Floats]:
    """Means of 25 pairs, values further than 3 sd from the median pulled in, and their standard errors by the scatter
    within; NaN where fewer than 8 pairs are known. Pairs after the last whole block are left out."""
    blocks = gap[: len(gap) // BLOCK * BLOCK].reshape(-1, BLOCK)
    count = np.isfinite(blocks).sum(axis=1)
    median = _row_median(blocks, count)
    rest = blocks - median[:, None]
    sd = MAD_TO_SD * _row_median(np.abs(rest), count)
    reach = 3.0 * sd[:, None]
    means, noise = median + _mean_known(np.clip(rest, -reach, reach), axis=1), sd / np.sqrt(BLOCK)
    few = count < LEAST_PAIRS
    means[few], noise[few] = np.nan, np.nan
    return means, noise


def changes(means: Floats) -> tuple[Floats, Floats]:
    """Mean of the newest 4 blocks, and that minus the mean of the 4 before; NaN where one of the 8 is missing."""
    if len(means) < 2 * BLOCKS:
        return np.zeros(0), np.zeros(0)
    newest = np.lib.stride_tricks.sliding_window_view(means, BLOCKS).mean(axis=1)
    return newest[BLOCKS:], newest[BLOCKS:] - newest[:-BLOCKS]


def _last_steps(steps: Ints, entries: int) -> Ints:
    return steps[BLOCK * (2 * BLOCKS + np.arange(entries)) - 1]
