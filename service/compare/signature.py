"""Batches recognised by the residuals they leave in a series: no look at the data is needed.

A batch's difficulty dominates one step's loss about its local mean, so equal batches show as correlated residuals.
Measured on real reruns of one data order (25-step detrending): correlation 0.96 or more over 8 to 64 steps, where the
99.9 % quantile of unrelated batches is 0.92 over 8, 0.72 over 16, 0.51 over 32 and 0.41 over 64 steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .noise import MAD_TO_SD

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WINDOW = 25  # points under one local mean
CLIP_SD = 3.0  # residuals are pulled in to this: two spikes that meet must not look like equal batches
SCALE_POINTS = 256  # points that share one scale
TILE = SCALE_POINTS  # points whose residuals settle together
MARGIN = 2 * SCALE_POINTS  # points on either side that a residual may rest on
AT_ONCE = 64 * SCALE_POINTS  # what the processor keeps near
PIECE = 2048  # settled points that are looked at together
SAME = 0.9  # correlation of equal batches that the likelihood ratio assumes: below what was ever measured after warm-up
WORST, BEST = -4.0, 1.3  # bounds of one pair's log likelihood ratio: one odd step decides nothing
LONGEST_STRIDE = 100_000
SCALE_LOOKS = 20_000  # lags whose scatter stands for that of all
FFT_POINTS = 4096


@dataclass(frozen=True, slots=True)
class Grid:
    """A series on evenly spaced steps: point i is at `first_step` + i x `stride`; NaN where none was logged."""

    first_step: int
    stride: int
    values: Floats

    def index(self, step: int) -> int:
        """Index of the first point at or after a step (may lie outside)."""
        return -(-(step - self.first_step) // self.stride)

    def step(self, index: int) -> int:
        """Step of a point."""
        return self.first_step + index * self.stride

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Match:
    """Where a stretch of residuals was met before: `lag` points earlier, with correlation `r` over `n` points.

    `limit` is what r had to reach among `looks` lags; `runner_up` is the best correlation at any other lag."""

    lag: int
    r: float
    n: int
    limit: float
    runner_up: float
    looks: int


def on_grid(steps: Ints, values: Floats) -> Grid | None:
    """Place a series (n,) on its usual spacing; points off it are left out. None with fewer than 2 points, or where the
    usual spacing would leave three of four places empty."""
    if len(steps) < 2:
        return None
    between = np.diff(steps)
    stride = int(between[0])
    if (between != stride).any():
        sizes, counts = np.unique(between, return_counts=True)
        stride = int(sizes[np.argmax(counts)])
    if not 0 < stride < LONGEST_STRIDE:
        return None
    offsets = (steps - steps[0]) % stride
    keep = offsets == np.bincount(offsets).argmax()
    first = int(steps[keep][0])
    at = (steps[keep] - first) // stride
    size = int(at[-1]) + 1
    if size > 4 * len(at):
        return None
    placed = np.full(size, np.nan)
    placed[at] = np.where(np.isfinite(values[keep]), values[keep], np.nan)
    return Grid(first, stride, placed)


def settled_points(points: int) -> int:
    """How many leading residuals of a series of so many points no later point changes; a multiple of TILE."""
    return max(points // SCALE_POINTS - 2, 0) * SCALE_POINTS


def residuals(values: Floats, breaks: Sequence[int] = (), start: int = 0) -> Floats:
    """Standardised residuals about a robust local mean of 25 points, NaN where `values` (n,) is: those from `start` on,
    which is 0 or a multiple of TILE up to `settled_points(n)`, (n - start,).

    The mean is taken of values pulled in to 3 sd, and a second time of what is left, so that neither slope nor
    curvature of the curve remains; no mean reaches over one of the indices `breaks`, where the level may jump (a
    restart). Scaled by the spread of 256 neighbours and pulled in to 3 sd. A residual rests on the points around it
    alone, to the last bit, so that a longer series has the same ones."""
    n = len(values)
    out = np.empty(n - start)
    cuts = np.unique(np.asarray([b for b in breaks if 0 < b < n], dtype=np.int64))
    settled = settled_points(n)
    at = start
    while at < n:
        # What is left at the end goes with the last block: only the last piece may end there.
        end = at + AT_ONCE if at + AT_ONCE <= settled else n
        begin, until = max(at - MARGIN, 0), min(end + MARGIN, n)
        out[at - start : end - start] = _standardised(values[begin:until], cuts - begin)[at - begin : end - begin]
        at = end
    return out


def _standardised(values: Floats, cuts: Ints) -> Floats:
    """The residuals (n,) of one stretch by itself."""
    n = len(values)
    there = np.isfinite(values)
    whole = bool(there.all())
    edges = [0, *cuts[(cuts > 0) & (cuts < n)].tolist(), n]
    count = np.maximum(_around(there.astype(np.float64), edges), 1.0)
    x = values if whole else np.where(there, values, 0.0)

    def only(rest: Floats) -> Floats:
        return rest if whole else np.where(there, rest, 0.0)

    rest = only(x - _around(x, edges) / count)
    reach = CLIP_SD * _spread(rest, there)
    for _ in range(2):
        rest = only(rest - _around(np.clip(rest, -reach, reach), edges) / count)
    scale = _spread(rest, there)
    standard = np.clip(rest / np.where(scale > 0.0, scale, np.inf), -CLIP_SD, CLIP_SD)
    return standard if whole else np.where(there, standard, np.nan)


def _around(values: Floats, edges: Sequence[int]) -> Floats:
    """Sums (n,) of the 25 points around each of `values` (n,), none reaching over an edge. Each is of its own points
    alone, added in one order: no running sum, whose last bits would tell where it began."""
    half = WINDOW // 2
    out = np.empty(len(values))
    for begin, end in pairwise(edges):
        near = np.zeros(end - begin + 2 * half)
        near[half : half + end - begin] = values[begin:end]
        two = near[:-1] + near[1:]
        four = two[:-2] + two[2:]
        eight = four[:-4] + four[4:]
        total = eight[:-16] + eight[8:-8]
        total += eight[16:]
        np.add(total[: end - begin], near[2 * half :], out=out[begin:end])
    return out


def correlations(window: Floats, history: Floats) -> Floats:
    """Normalised cross-correlation of `window` (n,) with every n points of `history` (m,): (m - n + 1,), by FFT.

    Missing points (NaN) count for nothing. 0 where either side has no energy. Cost: O(m log 4096)."""
    n, m = len(window), len(history)
    if n == 0 or m < n:
        return np.zeros(0)
    w, h = np.nan_to_num(window), np.nan_to_num(history)
    dot = _slide(w, h)
    there = np.isfinite(window)
    energy = _windowed(h * h, n) if there.all() else _slide(there.astype(np.float64), h * h)
    power = float(w @ w) * np.maximum(energy, 0.0)
    floor = 1e-6 * n * n  # residuals have unit variance: less than a thousandth of that is no signal
    return np.where(power > floor, np.clip(dot / np.sqrt(np.maximum(power, floor)), -1.0, 1.0), 0.0)


def correlation_limit(n: int, looks: int, alpha: float, scale: float = 1.0) -> float:
    """What the best of `looks` correlations of unrelated stretches of n points exceeds with probability `alpha`.

    Fisher's z: atanh(r) has sd 1/sqrt(n - 3); two more degrees of freedom go into the local mean. `scale` is by how
    much the spread of r was seen to exceed that (autocorrelation)."""
    z = -NormalDist().inv_cdf(alpha / max(looks, 1))
    return float(np.tanh(z * max(scale, 1.0) / np.sqrt(max(n - 5, 1))))


def best_match(window: Floats, history: Floats, *, alpha: float, least: float, min_lag: int) -> Match | None:
    """The lag at which `window`, the newest points of a series, was met in `history`, all points up to the same last
    one; None where no lag of `min_lag` or more stands out.

    A lag stands out where r reaches `least` and the limit for `alpha`. Of several copies that cannot be told apart (4
    standard errors of Fisher's z) the nearest counts."""
    n = int(np.isfinite(window).sum())
    r = correlations(window, history[: max(len(history) - min_lag, 0)])
    if n < 8 or len(r) == 0:
        return None
    root = np.sqrt(max(n - 5, 1))
    sample = np.arctanh(np.clip(r[:: -(-len(r) // SCALE_LOOKS)], -0.999999, 0.999999)) * root
    scale = max(float(MAD_TO_SD * np.median(np.abs(sample))) if len(sample) >= 64 else 1.0, 1.0)
    limit = max(correlation_limit(n, len(r), alpha, scale), least)
    best = min(float(r.max()), 0.999999)
    if best < limit:
        return None
    copies = np.flatnonzero(r >= max(float(np.tanh(np.arctanh(best) - 4.0 * scale / root)), limit))
    others = np.delete(r, copies)
    runner_up = float(others.max()) if len(others) else 0.0
    nearest = int(copies[-1])
    return Match(len(history) - len(window) - nearest, float(r[nearest]), n, limit, runner_up, len(r))


def same_batch_evidence(mine: Floats, other: Floats) -> Floats:
    """Log likelihood ratio (n,), in nats, of each pair of residuals being of one batch (bivariate normal, correlation
    0.9) against two (independent), bounded to -4 … 1.3; 0 where either is missing."""
    rest = 1.0 - SAME**2
    quadratic = SAME**2 * (mine**2 + other**2) - 2.0 * SAME * mine * other
    ratio = -0.5 * np.log(rest) - quadratic / (2.0 * rest)
    return np.where(np.isfinite(ratio), np.clip(ratio, WORST, BEST), 0.0)


def correlation(mine: Floats, other: Floats) -> tuple[float, int]:
    """Correlation about zero of two parallel residual series, and on how many pairs; (0, n) where one is flat."""
    both = np.isfinite(mine) & np.isfinite(other)
    a, b = mine[both], other[both]
    power = float(a @ a) * float(b @ b)
    return (float(a @ b) / float(np.sqrt(power)) if power > 0.0 else 0.0), len(a)


def _spread(rest: Floats, there: NDArray[np.bool_]) -> Floats:
    """Per point the robust sd of the 256 points of its block; what is left at the end goes with the last block."""
    n = len(rest)
    blocks = max(n // SCALE_POINTS, 1)
    whole = (blocks - 1) * SCALE_POINTS
    size = np.abs(rest) if there.all() else np.where(there, np.abs(rest), np.inf)
    sd = (
        np.append(_median_of(size[:whole].reshape(blocks - 1, SCALE_POINTS)), _median_of(size[None, whole:]))
        * MAD_TO_SD
    )
    out = np.full(n, sd[-1])
    out[:whole] = np.repeat(sd[:-1], SCALE_POINTS)
    return out


def _median_of(rows: Floats) -> Floats:
    """Per row the (lower) median of what is finite; 0 without any. Missing values are infinite."""
    if rows.size == 0:
        return np.zeros(len(rows))
    if np.isfinite(rows[:, -1]).all() and np.isfinite(rows).all():
        middle = (rows.shape[1] - 1) // 2
        return np.partition(rows, middle, axis=1)[:, middle]
    count = np.isfinite(rows).sum(axis=1)
    ordered = np.sort(rows, axis=1)
    return np.where(count > 0, ordered[np.arange(len(rows)), np.maximum(count - 1, 0) // 2], 0.0)


def _windowed(values: Floats, n: int) -> Floats:
    total = np.concatenate(([0.0], np.cumsum(values)))
    return total[n:] - total[:-n]


def _slide(window: Floats, history: Floats) -> Floats:
    """sum(window * history[i : i + n]) for every i, by overlap-save in single precision (error about 1e-6)."""
    n, m = len(window), len(history)
    size = max(FFT_POINTS, 1 << (2 * n - 1).bit_length())
    hop = size - n + 1
    pieces = -(-(m - n + 1) // hop)
    padded = np.zeros((pieces - 1) * hop + size, np.float32)
    padded[:m] = history
    blocks = sliding_window_view(padded, size)[::hop]
    spectrum = np.fft.rfft(blocks, axis=1) * np.conj(np.fft.rfft(window.astype(np.float32), size))
    slid = np.fft.irfft(spectrum, size, axis=1)[:, :hop].reshape(-1)
    return slid[: m - n + 1].astype(np.float64)
