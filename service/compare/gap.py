"""The gap of a run to its reference: per point, and as robust block means with honest standard errors."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from .align import Aligned, Floats, Ints
from .medians import median, row_medians
from .noise import MAD_TO_SD, variance_inflation

NOISE_MEMORY = 21  # blocks whose median spread stands for the noise of one: a single odd block does not set it
MIN_POINTS = 4
STRIDE_POINTS = 64  # first points from which a log's usual distance in steps is taken
CLIP_SD = 3.0  # values further than this from the block's median are pulled in before the mean is taken


@dataclass(frozen=True, slots=True)
class Blocks:
    """Complete blocks of a gap series, ascending. All arrays (m,): first and last step and token of the points in it,
    robust `mean`, its standard error `se` (step noise, autocorrelation, the reference's own noise), points of the run
    `n`, and `support`: how many reference points carry the block's level."""

    first_step: Ints
    last_step: Ints
    first_tokens: Floats
    last_tokens: Floats
    mean: Floats
    se: Floats
    n: Ints
    support: Ints

    def __len__(self) -> int:
        return len(self.mean)


@dataclass(frozen=True, slots=True)
class Change:
    """A change between two spans with its standard error, from `before` and `after` values (0: assumed)."""

    value: float
    se: float
    before: int
    after: int

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval."""
        return self.value - 1.96 * self.se, self.value + 1.96 * self.se


@dataclass(frozen=True, slots=True)
class RawBlocks:
    """What each complete block says by itself, before its neighbours' spread is looked at. All arrays (m,); `window` is
    the width in steps that was used. `sd`, `lag_one`: spread and autocorrelation of the gap's values in the block;
    `level_se`: the error of the reference's level there; `alone`: whether any point has no pair."""

    window: int
    first_step: Ints
    last_step: Ints
    first_tokens: Floats
    last_tokens: Floats
    mean: Floats
    sd: Floats
    lag_one: Floats
    level_se: Floats
    alone: NDArray[np.bool_]
    n: Ints
    support: Ints

    def __len__(self) -> int:
        return len(self.mean)

    def joined(self, later: RawBlocks, keep: int) -> RawBlocks:
        """The first `keep` blocks of this, followed by `later`."""
        names = [field.name for field in fields(RawBlocks)][1:]
        both = {name: np.concatenate((getattr(self, name)[:keep], getattr(later, name))) for name in names}
        return replace(later, **both)


def block_gaps(aligned: Aligned, window: int, *, min_points: int = MIN_POINTS) -> Blocks:
    """Block means of the gap over steps k*window+1 … (k+1)*window; blocks lie on a fixed grid, so appending points
    changes none that was complete. The block still being filled is left out, as are blocks with fewer than
    `min_points` finite points. Logs thinner than 20 points per window get windows as many times wider. Causal."""
    stride = stride_of(aligned.steps)
    return combine(raw_blocks(aligned, widened(window, stride), stride, min_points=min_points))


def stride_of(steps: Ints) -> int:
    """The usual distance of logged steps, from the first ones."""
    return int(median(np.diff(steps[:STRIDE_POINTS]))) if len(steps) > 1 else 1


def widened(window: int, stride: int) -> int:
    """The multiple of `window` that holds at least 20 points of a log with that stride."""
    return window * max(1, -(-20 * stride // window))


def raw_blocks(aligned: Aligned, window: int, stride: int, *, min_points: int = MIN_POINTS) -> RawBlocks:
    """Each complete block by itself. A block's numbers depend on its own points only, to the last bit."""
    gap = aligned.gap
    finite = np.isfinite(gap)
    if not finite.any():
        return no_blocks(window)
    newest = int(aligned.steps[-1])
    steps, tokens, ref_se, paired = aligned.steps, aligned.tokens, aligned.reference_se, aligned.paired
    low, high = aligned.low, aligned.high
    if not finite.all():
        steps, tokens, gap, ref_se = steps[finite], tokens[finite], gap[finite], ref_se[finite]
        paired, low, high = paired[finite], low[finite], high[finite]
    index = (steps - 1) // window
    starts = np.flatnonzero(np.diff(index, prepend=index[0] - 1))
    ends = np.append(starts[1:], len(index))
    keep = (ends - starts >= min_points) & ((index[starts] + 1) * window < newest + max(stride, 1))
    starts, ends = starts[keep], ends[keep]
    if len(starts) == 0:
        return no_blocks(window)
    counts = ends - starts
    mean, sd, lag_one = _robust(gap, starts, counts)
    support = np.searchsorted(aligned.points, high[ends - 1], side="right") - np.searchsorted(
        aligned.points, low[starts], side="left"
    )
    inside = np.searchsorted(aligned.points, tokens[ends - 1], side="right") - np.searchsorted(
        aligned.points, tokens[starts], side="left"
    )
    # A local level's error is shared by neighbouring points: the block's is their mean, until the block itself holds
    # more reference points than one level rests on.
    carried = np.maximum(support - inside, 1)
    level_se = _sums(ref_se, starts, ends) / counts * np.sqrt(np.minimum(1.0, carried / np.maximum(inside, 1)))
    alone = _sums(paired.astype(np.float64), starts, ends) < counts
    return RawBlocks(
        window, steps[starts], steps[ends - 1], tokens[starts], tokens[ends - 1], mean, sd, lag_one, level_se, alone,
        counts, support.astype(np.int64),
    )  # fmt: skip


def combine(raw: RawBlocks, noise: Floats | None = None) -> Blocks:
    """Blocks with their standard errors: the noise of one point is the median spread of the newest 21 blocks (or
    `noise`, where a caller has kept `spread_so_far`), its autocorrelation the mean over ten times as many."""
    if len(raw) == 0:
        return Blocks(
            raw.first_step, raw.last_step, raw.first_tokens, raw.last_tokens, raw.mean, raw.mean, raw.n, raw.support
        )
    noise = spread_so_far(raw.sd) if noise is None else noise
    inflation = variance_inflation(_trailing_mean(raw.lag_one, raw.n))
    own = noise * np.sqrt(inflation / raw.n)
    se = np.sqrt(own**2 + np.where(raw.alone, raw.level_se, 0.0) ** 2)
    return Blocks(raw.first_step, raw.last_step, raw.first_tokens, raw.last_tokens, raw.mean, se, raw.n, raw.support)


def spread_so_far(sd: Floats, start: int = 0) -> Floats:
    """Per block from `start` on: the median of the newest 21 spreads up to it, (m - start,)."""
    padded = np.concatenate((np.full(NOISE_MEMORY - 1, np.nan), sd))[start:]
    windows = np.lib.stride_tricks.sliding_window_view(padded, NOISE_MEMORY)
    counts: NDArray[np.int64] = np.minimum(np.arange(start, len(sd)) + 1, NOISE_MEMORY)
    return _row_median(np.asarray(windows), counts)


def change(before: Floats, after: Floats, noise_sd: float, *, assumed_sd: float = 0.0) -> Change:
    """Median of `after` minus median of `before`, for evaluations whose gap has standard deviation `noise_sd`.

    Medians forgive one-off jumps; their variance is pi/2 of a mean's from three values on. Without `before` the value
    before is taken as 0 with standard deviation `assumed_sd`. NaN with an infinite error where `after` holds none."""
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if len(after) == 0:
        return Change(float("nan"), float("inf"), len(before), 0)
    base = median(before) if len(before) else 0.0
    variance = _median_variance(len(after)) * noise_sd * noise_sd  # no powers: they raise where too large for a float
    variance += _median_variance(len(before)) * noise_sd * noise_sd if len(before) else assumed_sd * assumed_sd
    return Change(median(after) - base, float(np.sqrt(variance)), len(before), len(after))


def generalization_gap_change(train: Change, heldout: Change) -> Change:
    """Train gap change minus held-out gap change: about 0 for a real gain, below 0 for memorization."""
    return Change(
        train.value - heldout.value,
        float(np.hypot(train.se, heldout.se)),
        min(train.before, heldout.before),
        min(train.after, heldout.after),
    )


def _median_variance(n: int) -> float:
    return (1.0 if n < 3 else np.pi / 2.0) / n


def no_blocks(window: int) -> RawBlocks:
    """No block of that width."""
    empty, none = np.zeros(0), np.zeros(0, np.int64)
    return RawBlocks(window, none, none, empty, empty, empty, empty, empty, empty, np.zeros(0, bool), none, none)


def _sums(values: Floats, starts: Ints, ends: Ints) -> Floats:
    """Sums over the spans starts … ends - 1 (ascending, not empty); what lies between spans is left out."""
    bounds = np.stack((starts, ends), axis=1).reshape(-1)
    if bounds[-1] == len(values):
        bounds = bounds[:-1]
    return np.add.reduceat(values, bounds)[::2]


def _robust(values: Floats, starts: Ints, counts: Ints) -> tuple[Floats, Floats, Floats]:
    """Per block: the mean of values pulled in to the median ± 3 sd, the spread (MAD), the lag-one autocorrelation.

    Blocks of equal length are stacked, so that a block's sums are the same whatever stands beside it."""
    mean, sd, lag_one = (np.empty(len(starts)) for _ in range(3))
    for count in np.unique(counts).tolist():
        rows = np.flatnonzero(counts == count)
        grid = values[starts[rows][:, None] + np.arange(count)]
        median = row_medians(grid)[:, None]
        grid = grid - median
        spread = MAD_TO_SD * row_medians(np.abs(grid))
        bound = CLIP_SD * spread[:, None]
        clipped = np.clip(grid, -bound, bound)
        pulled = clipped.sum(axis=1) / count
        residual = clipped - pulled[:, None]
        power = (residual**2).sum(axis=1)
        lag = (residual[:, 1:] * residual[:, :-1]).sum(axis=1)
        mean[rows], sd[rows] = median[:, 0] + pulled, spread
        lag_one[rows] = np.where(power > 0, lag / np.where(power > 0, power, 1.0), 0.0) + 1.0 / count
    return mean, sd, lag_one


def _row_median(grid: Floats, counts: Ints) -> Floats:
    ordered = np.sort(grid, axis=1)  # NaN last
    rows = np.arange(len(grid))
    return (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2.0


def _trailing_mean(values: Floats, weights: Ints) -> Floats:
    total = np.cumsum(values * weights)
    weight = np.cumsum(weights).astype(np.float64)
    back = np.arange(len(values)) - 10 * NOISE_MEMORY
    old = np.maximum(back, 0)
    cut = back >= 0
    return (total - np.where(cut, total[old], 0.0)) / (weight - np.where(cut, weight[old], 0.0))
