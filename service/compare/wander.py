"""How far a training wanders slowly about its own curve, beyond what its step noise explains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .noise import MAD_TO_SD, WANDER_TO_TOLERANCE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LAG = 8  # blocks: healthy wander lasts some six of them, so that values so far apart are nearly independent
FEWEST = 48  # blocks after the first tenth; of fewer the curve's bend would count as wander
LEAST_POINTS = 4
SKIPPED = 0.10


def own_wander(steps: Ints, values: Floats, window: int, noise_sd: float | None) -> float | None:
    """Standard deviation of the slow wander of a series' means over `window` steps, after its first tenth; None where
    it is too short or too thin to tell.

    From second differences at a lag of 8 blocks, m(i+8) - 2 m(i) + m(i-8), whose variance is six times that of a block
    mean where blocks so far apart are independent; a straight line drops out, the bend of the curve is what their
    median takes away. The step noise of a block mean is subtracted in squares."""
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    if len(steps) < FEWEST * LEAST_POINTS or window < 1:
        return None
    index = (steps - 1) // window
    starts = np.flatnonzero(np.diff(index, prepend=index[0] - 1))
    counts = np.diff(np.append(starts, len(index)))
    means = np.add.reduceat(values, starts) / counts
    enough = counts >= LEAST_POINTS
    blocks, means = index[starts][enough], means[enough]
    late = (blocks >= index[0] + int(SKIPPED * (index[-1] - index[0] + 1))) & np.isfinite(means)
    blocks, means = blocks[late], means[late]
    if len(blocks) < FEWEST:
        return None
    before, after = (np.minimum(np.searchsorted(blocks, blocks + lag), len(blocks) - 1) for lag in (-LAG, LAG))
    both = (blocks[before] == blocks - LAG) & (blocks[after] == blocks + LAG)
    second = means[after[both]] - 2.0 * means[both] + means[before[both]]
    second = second[np.isfinite(second)]
    if len(second) < FEWEST // 2:
        return None
    spread = MAD_TO_SD * float(np.median(np.abs(second - np.median(second)))) / np.sqrt(6.0)
    noise = (noise_sd or 0.0) / np.sqrt(float(np.median(counts[enough])))
    return float(np.sqrt(max(spread**2 - noise**2, 0.0)))


def wander_tolerance(wander: float) -> tuple[float, str]:
    """The tolerance that a reference's own wander asks for, and its source: run and reference each wander so."""
    value = WANDER_TO_TOLERANCE * float(np.sqrt(2.0)) * wander
    return value, (
        f"the reference's own slow wander (sd {wander:.4f} nats): {WANDER_TO_TOLERANCE} sd of the difference of two "
        "runs that wander so; no sibling at this scale"
    )
