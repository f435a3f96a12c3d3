"""The gap of a run to its reference: per point, and as robust block means with honest standard errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .align import Aligned, Floats, Ints
from .noise import MAD_TO_SD, variance_inflation

NOISE_MEMORY = 21  # blocks whose median spread stands for the noise of one: a single odd block does not set it
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


def block_gaps(aligned: Aligned, window: int, *, min_points: int = 4) -> Blocks:
    """Block means of the gap over steps k*window+1 … (k+1)*window; blocks lie on a fixed grid, so appending points
    changes none that was complete. The block still being filled is left out, as are blocks with fewer than
    `min_points` finite points. Logs thinner than 20 points per window get windows as many times wider. Causal."""
    gap = aligned.gap
    finite = np.isfinite(gap)
    if not finite.any():
        return _none()
    stride = int(np.median(np.diff(aligned.steps[:64]))) if len(aligned.steps) > 1 else 1
    window *= max(1, -(-20 * stride // window))
    newest = int(aligned.steps[-1])
    steps, tokens, gap = aligned.steps[finite], aligned.tokens[finite], gap[finite]
    ref_se, paired = aligned.reference_se[finite], aligned.paired[finite]
    index = (steps - 1) // window
    starts = np.flatnonzero(np.diff(index, prepend=index[0] - 1))
    ends = np.append(starts[1:], len(index))
    keep = (ends - starts >= min_points) & ((index[starts] + 1) * window < newest + max(stride, 1))
    starts, ends = starts[keep], ends[keep]
    if len(starts) == 0:
        return _none()
    counts = ends - starts
    mean, sd, lag_one = _robust(gap, starts, counts)
    noise = _trailing_median(sd)
    inflation = variance_inflation(_trailing_mean(lag_one, counts))
    own = noise * np.sqrt(inflation / counts)
    lo = np.searchsorted(aligned.points, aligned.low[finite][starts], side="left")
    hi = np.searchsorted(aligned.points, aligned.high[finite][ends - 1], side="right")
    support = hi - lo
    inside = np.searchsorted(aligned.points, tokens[ends - 1], side="right") - np.searchsorted(
        aligned.points, tokens[starts], side="left"
    )
    # A local level's error is shared by neighbouring points: the block's is their mean, until the block itself holds
    # more reference points than one level rests on.
    level_se = _means(ref_se, starts, ends)
    carried = np.maximum(support - inside, 1)
    level_se = level_se * np.sqrt(np.minimum(1.0, carried / np.maximum(inside, 1)))
    unpaired = 1.0 - _means(paired.astype(np.float64), starts, ends)
    se = np.sqrt(own**2 + np.where(unpaired > 0, level_se, 0.0) ** 2)
    return Blocks(
        steps[starts], steps[ends - 1], tokens[starts], tokens[ends - 1], mean, se, counts, support.astype(np.int64)
    )


def change(before: Floats, after: Floats, noise_sd: float, *, assumed_sd: float = 0.0) -> Change:
    """Median of `after` minus median of `before`, for evaluations whose gap has standard deviation `noise_sd`.

    Medians forgive one-off jumps; their variance is pi/2 of a mean's from three values on. Without `before` the value
    before is taken as 0 with standard deviation `assumed_sd`. ValueError if `after` is empty."""
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if len(after) == 0:
        raise ValueError("change: there is no finite value after the onset")
    base = float(np.median(before)) if len(before) else 0.0
    variance = _median_variance(len(after)) * noise_sd**2
    variance += _median_variance(len(before)) * noise_sd**2 if len(before) else assumed_sd**2
    return Change(float(np.median(after)) - base, float(np.sqrt(variance)), len(before), len(after))


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


def _none() -> Blocks:
    empty, none = np.zeros(0), np.zeros(0, np.int64)
    return Blocks(none, none, empty, empty, empty, empty, none, none)


def _means(values: Floats, starts: Ints, ends: Ints) -> Floats:
    total = np.concatenate(([0.0], np.cumsum(values)))
    return (total[ends] - total[starts]) / (ends - starts)


def _robust(values: Floats, starts: Ints, counts: Ints) -> tuple[Floats, Floats, Floats]:
    """Per block: the mean of values pulled in to the median ± 3 sd, the spread (MAD), the lag-one autocorrelation."""
    width = int(counts.max())
    grid = np.full((len(starts), width), np.nan)
    column = np.arange(width)
    filled = column < counts[:, None]
    take = (starts[:, None] + column)[filled]
    grid[filled] = values[take]
    median = _row_median(grid, counts)[:, None]
    sd = MAD_TO_SD * _row_median(np.abs(grid - median), counts)
    spread = CLIP_SD * sd[:, None]
    clipped = np.clip(grid - median, -spread, spread)
    clipped = np.where(filled, clipped, 0.0)
    mean = clipped.sum(axis=1) / counts
    residual = np.where(filled, clipped - mean[:, None], 0.0)
    power = (residual**2).sum(axis=1)
    lag = (residual[:, 1:] * residual[:, :-1]).sum(axis=1)
    lag_one = np.where(power > 0, lag / np.where(power > 0, power, 1.0), 0.0) + 1.0 / counts
    return median[:, 0] + mean, sd, lag_one


def _row_median(grid: Floats, counts: Ints) -> Floats:
    ordered = np.sort(grid, axis=1)  # NaN last
    rows = np.arange(len(grid))
    return (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2.0


def _trailing_median(values: Floats) -> Floats:
    padded = np.concatenate((np.full(NOISE_MEMORY - 1, np.nan), values))
    windows = np.lib.stride_tricks.sliding_window_view(padded, NOISE_MEMORY)
    counts: NDArray[np.int64] = np.minimum(np.arange(len(values)) + 1, NOISE_MEMORY)
    return _row_median(np.asarray(windows), counts)


def _trailing_mean(values: Floats, weights: Ints) -> Floats:
    total = np.cumsum(values * weights)
    weight = np.cumsum(weights).astype(np.float64)
    back = np.arange(len(values)) - 10 * NOISE_MEMORY
    old = np.maximum(back, 0)
    cut = back >= 0
    return (total - np.where(cut, total[old], 0.0)) / (weight - np.where(cut, weight[old], 0.0))
