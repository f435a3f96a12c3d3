"""Placing a run's series beside the reference's on the token axis.

Only the reference is ever smoothed or interpolated; the run's values stay as they were logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Kind = Literal["noisy", "evaluation"]

NEIGHBOURS = 25  # reference points under one local level: enough to see past single steps, few enough to follow bends
SPREAD_NEIGHBOURS = 101  # knots whose spreads make up the noise there
MAX_KNOTS = 20_000  # a longer reference is averaged down to this many points before it is smoothed


class SeriesLike(Protocol):
    """Anything with sorted `steps` (int64), `tokens` and `values` (float64), all (n,)."""

    @property
    def steps(self) -> Ints: ...
    @property
    def tokens(self) -> Floats: ...
    @property
    def values(self) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Level:
    """A reference's local level. Parallel arrays at its knots, ascending in tokens: level, the standard error of that
    level, and the token range of the points under it. `points` are the tokens of all finite reference points,
    `raw` their values; `noise_sd` is the noise of one point about the level. `kind` is how it was made."""

    tokens: Floats
    values: Floats
    se: Floats
    low: Floats
    high: Floats
    points: Floats
    raw: Floats
    noise_sd: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Aligned:
    """A run's points inside the reference's range. All arrays (n,): `reference` is the reference at equal tokens,
    `reference_se` its standard error (0 where `paired`: there the run's point meets a reference point at the same
    tokens, and the noise of both is in the gap), `low`/`high` the token range of the reference points under it."""

    steps: Ints
    tokens: Floats
    run: Floats
    reference: Floats
    reference_se: Floats
    paired: NDArray[np.bool_]
    low: Floats
    high: Floats
    points: Floats

    @property
    def gap(self) -> Floats:
        """Run minus reference, (n,)."""
        return self.run - self.reference

    def __len__(self) -> int:
        return len(self.steps)


def kind_of(metric: str) -> Kind:
    """Held-out losses and accuracies are evaluations (interpolated); all else is noisy, logged step by step."""
    return "evaluation" if metric.startswith(("heldout/", "downstream/")) else "noisy"


def level(reference: SeriesLike, kind: Kind) -> Level:
    """The local level of a reference series; of two points at equal tokens the later counts.

    `noisy`: a straight line in log tokens through the 25 nearest points, weights falling to their edge (tricube), twice
    made robust (Tukey's biweight): LOWESS (Cleveland 1979). `evaluation`: the points themselves.
    """
    tokens, values = _finite_unique(reference)
    if kind == "evaluation" or len(tokens) < 5:
        noise = np.zeros(len(tokens))
        return Level(tokens, values, noise, tokens, tokens, tokens, values, 0.0, kind)
    points, raw = tokens, values
    group = -(-len(tokens) // MAX_KNOTS)
    if group > 1:
        whole = len(tokens) // group * group
        tokens = tokens[:whole].reshape(-1, group).mean(axis=1)
        values = np.median(values[:whole].reshape(-1, group), axis=1)
    fitted, se, low, high, noise_sd = _lowess(tokens, values)
    if group > 1:
        tokens[0], tokens[-1] = points[0], points[-1]  # keep the whole range
    return Level(tokens, fitted, se, low, high, points, raw, noise_sd * float(np.sqrt(group)), kind)


def align(run: SeriesLike, reference: Level, *, first: int = 0) -> Aligned:
    """Place the run's points beside the reference. Points outside the reference's token range are left out.

    A noisy run is compared pair by pair where the reference has a point at the same tokens and is there at least as
    dense as the run; elsewhere with the reference's local level. Causal: a point's place depends on no later point, and
    of the earlier ones on the last alone, so a long run's newest points may be placed by themselves: the `first` points
    are then only looked back at, and left out.
    """
    tokens, values, steps = run.tokens, run.values, run.steps
    inside = np.zeros(len(tokens), dtype=bool)
    if len(reference.tokens):
        inside = (tokens >= reference.points[0]) & (tokens <= reference.points[-1])
    if not inside.all():
        tokens, values, steps = tokens[inside], values[inside], steps[inside]
    if len(tokens) <= first:
        none = np.zeros(0)
        return Aligned(steps[:0], none, none, none, none, np.zeros(0, bool), none, none, reference.points)
    points, last = reference.points, len(reference.points) - 1
    start = int(np.searchsorted(points, float(tokens[0])))
    if np.array_equal(points[start : start + len(tokens)], tokens):  # the usual case: both log every step
        at: Ints = np.arange(start, start + len(tokens))
    else:
        after = np.minimum(np.searchsorted(points, tokens), last)
        before = np.maximum(after - 1, 0)
        at = np.where(tokens - points[before] < points[after] - tokens, before, after)
    up, down = np.minimum(at + 1, last), np.maximum(at - 1, 0)
    spacing = (points[up] - points[down]) / np.maximum(up - down, 1)
    paired = np.abs(points[at] - tokens) <= 1e-3 * np.maximum(spacing, 1e-9)
    if reference.kind == "noisy":
        paired &= ~(spacing > 1.5 * np.diff(tokens, prepend=np.nan))  # the first point has no spacing of its own
    tokens, values, steps, at, paired = tokens[first:], values[first:], steps[first:], at[first:], paired[first:]
    expected, se, low = reference.raw[at], np.zeros(len(tokens)), points[at]
    high = low
    if not paired.all():
        alone = np.flatnonzero(~paired)
        x, knots = _axis(tokens[alone], reference), _axis(reference.tokens, reference)
        expected[alone] = np.interp(x, knots, reference.values)
        se[alone] = np.interp(x, knots, reference.se)
        right = np.minimum(np.searchsorted(reference.tokens, tokens[alone]), len(reference.tokens) - 1)
        left = np.where(reference.tokens[right] > tokens[alone], np.maximum(right - 1, 0), right)
        high = low.copy()
        low[alone], high[alone] = reference.low[left], reference.high[right]
    return Aligned(steps, tokens, values, expected, se, paired, low, high, points)


@dataclass(frozen=True, slots=True)
class _Head:
    steps: Ints
    tokens: Floats
    values: Floats


def head(run: SeriesLike, reference: Level, points: int) -> SeriesLike:
    """The run's first points in the reference's token range."""
    first = 0
    if len(reference.points):
        first = int(np.searchsorted(run.tokens, float(reference.points[0])))
    some = slice(first, first + points)
    return _Head(run.steps[some], run.tokens[some], run.values[some])


def _finite_unique(series: SeriesLike) -> tuple[Floats, Floats]:
    keep = np.isfinite(series.values) & np.isfinite(series.tokens)
    tokens, values = series.tokens[keep], series.values[keep]
    order = np.argsort(tokens, kind="stable")
    tokens, values = tokens[order], values[order]
    last = np.append(tokens[1:] != tokens[:-1], True) if len(tokens) else np.zeros(0, bool)
    return tokens[last].astype(np.float64), values[last].astype(np.float64)


def _axis(tokens: Floats, reference: Level) -> Floats:
    """Loss curves bend far less over log tokens; where tokens may be 0 the axis stays linear."""
    return np.log(tokens) if reference.points[0] > 0.0 else tokens


def _lowess(tokens: Floats, values: Floats) -> tuple[Floats, Floats, Floats, Floats, float]:
    n = len(tokens)
    k = min(NEIGHBOURS, max(5, n // 3))  # of a few points only a part: a line through all would miss the bend
    start = np.clip(np.arange(n) - k // 2, 0, n - k)
    x_all = np.log(np.maximum(tokens, tokens[-1] * 1e-9))
    x: Floats = sliding_window_view(x_all, k)[start] - x_all[:, None]
    y: Floats = sliding_window_view(values, k)[start]
    reach: Floats = np.abs(x).max(axis=1, keepdims=True) * 1.0001 + 1e-300
    base: Floats = (1.0 - (np.abs(x) / reach) ** 3) ** 3
    weight, kernel = base, base
    fit, scale = np.zeros(n), np.zeros((n, 1))
    for _ in range(3):
        fit, slope, kernel = _weighted_line(x, y, weight)
        residual = y - fit[:, None] - slope[:, None] * x
        scale = 1.4826 * np.median(np.abs(residual), axis=1, keepdims=True)
        weight = base * np.maximum(1.0 - (residual / np.maximum(6.0 * scale, 1e-12)) ** 2, 0.0) ** 2
        weight = np.where(weight.sum(axis=1, keepdims=True) > 1e-6, weight, base)
    # The spread of 25 points is itself known to a fifth only; noise changes slowly, so neighbours tell more.
    near = min(SPREAD_NEIGHBOURS, n)
    around = np.clip(np.arange(n) - near // 2, 0, n - near)
    spread = np.median(sliding_window_view(scale[:, 0], near), axis=1)[around]
    se = np.hypot(spread * np.sqrt((kernel**2).sum(axis=1)), _bend(x_all, fit))
    return fit, se, tokens[start], tokens[start + k - 1], float(np.median(scale))


def _bend(x: Floats, fit: Floats) -> Floats:
    """How far each knot lies off the straight line between its neighbours: what a line over a few knots may miss."""
    if len(fit) < 3:
        return np.zeros(len(fit))
    share = (x[1:-1] - x[:-2]) / np.maximum(x[2:] - x[:-2], 1e-300)
    off = np.abs(fit[1:-1] - fit[:-2] - share * (fit[2:] - fit[:-2]))
    off = np.concatenate((off[:1], off, off[-1:]))
    return np.maximum(off, np.maximum(np.append(off[1:], 0.0), np.append(0.0, off[:-1])))


def _weighted_line(x: Floats, y: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Per row: a weighted line's value at x = 0, its slope, and the weights each y has in that value."""
    s0, s1, s2 = weight.sum(axis=1), (weight * x).sum(axis=1), (weight * x * x).sum(axis=1)
    det = s0 * s2 - s1 * s1
    line = det > 1e-12 * s0 * s2
    safe = np.where(line, det, 1.0)
    tilted: Floats = weight * (s2[:, None] - s1[:, None] * x) / safe[:, None]
    plain: Floats = weight / s0[:, None]
    kernel: Floats = np.asarray(np.where(line[:, None], tilted, plain), dtype=np.float64)
    slope = np.where(line, (s0 * (weight * x * y).sum(axis=1) - s1 * (weight * y).sum(axis=1)) / safe, 0.0)
    return (kernel * y).sum(axis=1), slope, kernel
