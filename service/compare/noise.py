"""How much a series wanders by itself: step noise, its autocorrelation, and the tolerance that healthy runs allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .medians import median

Floats = NDArray[np.float64]

MAD_TO_SD = 1.4826  # median absolute deviation -> standard deviation of a normal distribution
# AI2's OLMo 3 7B: one step's train loss has sd 0.0255 nats about its local mean, an independent reproduction stayed
# within 0.015, one C4 evaluation has sd 0.002. Other scales are assumed to keep these proportions.
ANCHOR_TOLERANCE = 0.015
TOLERANCE_PER_NOISE = 0.6
EVALUATION_NOISE_PER_STEP_NOISE = 0.08
ANCHOR_EVALUATION_NOISE = 0.002
# Simulated: false alarms per run fall from 0.46 to 0.005 as tolerance / wander rises from 2 to 3.5.
WANDER_TO_TOLERANCE = 3.5
WANDER_BLOCKS = 12.0  # healthy wander lasts: so many blocks tell as much as one independent value (phi = 0.85)


@dataclass(frozen=True, slots=True)
class HealthyWander:
    """How far healthy runs were seen, or are assumed, to wander.

    `value` is the tolerance of block means over `window_steps` steps, `noise_sd` the sd of one step's value, `runs` how
    many runs it rests on, `source` says so in words."""

    value: float
    source: str
    runs: int
    noise_sd: float | None
    window_steps: int


def step_noise(values: Floats) -> float | None:
    """Standard deviation of one value about its local mean; None with fewer than 5 finite values.

    From second differences (variance 6 sigma² for white noise, blind to a linear trend), by their median absolute
    deviation, so that spikes and steps of the level do not count (Gasser, Sroka, Jennen-Steinmetz 1986).
    """
    finite = values[np.isfinite(values)]
    if len(finite) < 5:
        return None
    second = finite[2:] - 2.0 * finite[1:-1] + finite[:-2]
    return float(MAD_TO_SD * median(np.abs(second)) / np.sqrt(6.0))


def variance_inflation(lag_one: Floats | float) -> Floats:
    """By how much autocorrelation widens the variance of a mean: (1 + r) / (1 - r) of an AR(1) process, 1 to 19."""
    r = np.clip(lag_one, 0.0, 0.9)
    return np.asarray((1.0 + r) / (1.0 - r), dtype=np.float64)


def default_window(noise_sd: float | None, tolerance: float, length: int | None = None) -> int:
    """Steps per block, 50 to 500 in steps of 50: so that step noise gives a difference of two block means an eighth of
    the tolerance, and a reference of `length` steps at least 20 blocks."""
    most = 500 if length is None else int(np.clip(length // 1000 * 50, 50, 500))
    if noise_sd is None or not np.isfinite(noise_sd) or tolerance <= 0.0:
        return most
    ratio = 8.0 * noise_sd / tolerance
    steps = 2.0 * ratio * ratio  # a power of a float raises where it is too large for one
    return int(min(np.clip(np.ceil(steps / 50.0) * 50.0, 50, 500), most))


def assumed_tolerance(noise_sd: float | None, length: int | None = None) -> HealthyWander:
    """The tolerance where no sibling runs exist: 0.015 nats at 7B scale, 0.6 of the step noise where that is larger."""
    value = max(ANCHOR_TOLERANCE, TOLERANCE_PER_NOISE * (noise_sd or 0.0))
    if value > ANCHOR_TOLERANCE:
        source = f"assumed, no sibling at this scale: 0.6 of the step noise ({noise_sd:.3f} nats), as at 7B"
    else:
        source = "assumed, no sibling at this scale: 0.015 nats, as at 7B with a global shuffle"
    return HealthyWander(value, source, 0, noise_sd, default_window(noise_sd, value, length))


def sibling_tolerance(
    gaps: Sequence[Floats],
    window_steps: int,
    noise_sd: float | None,
    *,
    unit: str = "nats",
    from_own_offset: bool = False,
) -> HealthyWander:
    """Tolerance from healthy runs. `gaps`: per sibling, its block-mean gaps to the reference over `window_steps` steps.

    3.5 times the root mean square of all those gaps (constant offsets between siblings are wander too), never below
    what step noise alone gives a difference of two block means. Raised by its standard error; blocks of one run share
    its offset, so that they are few values; where the gaps are counted `from_own_offset` they still share its wander.
    Raises ValueError without a finite gap.
    """
    used = [g[np.isfinite(g)] for g in gaps]
    used = [g for g in used if len(g)]
    if not used:
        raise ValueError("tolerance from siblings: no sibling shares steps with the reference; check their token axes")
    pooled = np.concatenate(used)
    count = max(len(pooled) / WANDER_BLOCKS, len(used)) if from_own_offset else _independent(used)
    # Few values estimate a spread badly: the root mean square over n of them is raised by its own standard error.
    rms = float(np.sqrt(np.mean(pooled**2)) * (1.0 + 1.0 / np.sqrt(2.0 * count)))
    floor = (
        0.0
        if noise_sd is None or not _batches_differ(used, noise_sd, window_steps)
        else _difference_se(noise_sd, window_steps)
    )
    value = WANDER_TO_TOLERANCE * max(rms, floor, 1e-6)
    source = (
        f"{WANDER_TO_TOLERANCE} sd of the {window_steps}-step mean gaps of {len(used)} healthy "
        f"run{'s' if len(used) != 1 else ''} (sd {max(rms, floor):.4f} {unit})"
    )
    return HealthyWander(value, source, len(used), noise_sd, window_steps)


def _independent(gaps: Sequence[Floats]) -> float:
    """How many independent values the gaps of several runs are worth: the blocks of one run share its offset (Kish's
    design effect, 1 + (m - 1) times the share of the variance that lies between runs)."""
    count = sum(len(g) for g in gaps)
    total = float(np.mean(np.concatenate(gaps) ** 2))
    within = float(np.mean([np.var(g) for g in gaps]))
    length = count / len(gaps)
    between = max(float(np.mean([np.mean(g) ** 2 for g in gaps])) - within / length, 0.0)
    return count / (1.0 + (length - 1.0) * (between / total if total > 0.0 else 0.0))


def _difference_se(noise_sd: float, window: int) -> float:
    return noise_sd * float(np.sqrt(2.0 / window))


def _batches_differ(gaps: Sequence[Floats], noise_sd: float, window: int) -> bool:
    """False where block gaps jump from block to block far less than unrelated batches would make them (same data)."""
    jumps = np.concatenate([np.diff(g) for g in gaps])
    if len(jumps) < 4:
        return True
    sd = MAD_TO_SD * float(np.median(np.abs(jumps))) / np.sqrt(2.0)
    return sd > 0.25 * _difference_se(noise_sd, window)
