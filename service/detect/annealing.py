"""How much of a gap another learning-rate schedule explains, by a scaling law of loss and schedule.

The law is that of Tissue, Wang and Wang, "Scaling Law with Learning Rate Annealing" (2024, arXiv 2408.11029):

    L(s) = L0 + A · S1^(−a) − C · S2        S1 = Σ η_i        S2 = Σ_i Σ_{k≤i} (η_{k−1} − η_k) · λ^(i−k)

with λ = 0.999, as they use it. L0, A, a and C are fitted to the reference's own loss under its own schedule; the run's
schedule is then put into the same law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .inputs import Floats, Series

DECAY = 0.999  # λ, per step
GRID = 2_000  # places in steps at which areas are summed up
POWERS = np.linspace(0.1, 1.5, 29)
SKIP = 0.05  # of the reference's steps: there the law does not hold, and would bend the fit of all the rest
MIN_POINTS = 50
SOURCE = "the annealing law of Tissue et al. 2024 (arXiv 2408.11029), fitted to the reference's own loss"


@dataclass(frozen=True, slots=True)
class Fit:
    """The law's parameters; `rms` is the root mean square of what it misses of the reference's local level, in nats."""

    floor: float
    scale: float
    power: float
    annealing: float
    rms: float
    first: float  # step from which it holds

    def loss(self, forward: Floats, annealed: Floats) -> Floats:
        """Loss (n,) at areas S1 and S2 (n,)."""
        return self.floor + self.scale * np.maximum(forward, 1e-300) ** -self.power - self.annealing * annealed


@dataclass(frozen=True, slots=True)
class Explained:
    """The gap that the run's schedule makes by the law at the run's newest step, in nats; `rms` as of the fit."""

    gap: float
    rms: float


def fit(loss_steps: Floats, loss: Floats, rate: Series) -> Fit | None:
    """Fit the law to the reference: `loss` (n,) is its local level at `loss_steps`. None where there is too little."""
    if len(rate) < 2 or len(loss_steps) < MIN_POINTS:
        return None
    last = float(min(loss_steps[-1], rate.steps[-1]))
    first = max(SKIP * last, float(_peak(rate)))
    steps, s1, s2 = _areas(np.asarray(rate.steps, np.float64), rate.values, last)
    use = (loss_steps >= first) & (loss_steps <= last) & np.isfinite(loss)
    if int(use.sum()) < MIN_POINTS or s1[-1] <= 0.0:
        return None
    forward, annealed = np.interp(loss_steps[use], steps, s1), np.interp(loss_steps[use], steps, s2)
    best: Fit | None = None
    for power in POWERS.tolist():
        columns = np.column_stack((np.ones(len(forward)), np.maximum(forward, 1e-300) ** -power, -annealed))
        found = _least_squares(columns, loss[use])
        if found is None:
            continue
        (floor, scale, gain), rms = found
        if best is None or rms < best.rms:
            best = Fit(floor, scale, power, gain, rms, first)
    # A reference whose rate never falls much cannot tell what a fall does.
    return best if best is not None and best.annealing > 0.0 else None


def explained(law: Fit, reference: Series, run: Series) -> Explained | None:
    """The gap at the run's newest step. Before the run's first logged rate it had the reference's."""
    good = np.isfinite(run.values)
    steps, values = np.asarray(run.steps[good], np.float64), run.values[good]
    if len(steps) == 0 or len(reference) < 2 or steps[-1] <= law.first:
        return None
    now = float(min(steps[-1], reference.steps[-1]))
    their_steps = np.asarray(reference.steps, np.float64)
    before = their_steps < steps[0]
    own_steps, own = np.concatenate((their_steps[before], steps)), np.concatenate((reference.values[before], values))
    made: list[float] = []
    for at, rate in ((their_steps, reference.values), (own_steps, own)):
        _, s1, s2 = _areas(at, rate, now)
        if s1[-1] <= 0.0:
            return None
        made.append(float(law.loss(s1[-1:], s2[-1:])[0]))
    gap = made[1] - made[0]
    return Explained(gap, law.rms) if np.isfinite(gap) else None


def _areas(steps: Floats, rate: Floats, last: float) -> tuple[Floats, Floats, Floats]:
    """A grid of steps (GRID,), and S1 and S2 at each. The inner sum m of S2 loses 1 − λ of itself a step and gains the
    fall of the rate: over a cell of d steps in which the rate falls evenly by f,
    m becomes m·λ^d + f/d · (1 − λ^d)/(1 − λ), and S2 gains (f + λ·(m before − m after))/(1 − λ)."""
    grid = np.linspace(0.0, last, GRID)
    width = float(grid[1] - grid[0]) or 1.0
    at = np.interp(grid, steps, rate)
    forward = np.concatenate(([0.0], np.cumsum((at[1:] + at[:-1]) / 2.0 * width)))
    falls = at[:-1] - at[1:]
    kept = DECAY**width
    inner = np.zeros(GRID)
    for i, fall in enumerate(falls.tolist()):
        inner[i + 1] = inner[i] * kept + fall / width * (1.0 - kept) / (1.0 - DECAY)
    gains = (falls + DECAY * (inner[:-1] - inner[1:])) / (1.0 - DECAY)
    return grid, forward, np.concatenate(([0.0], np.cumsum(gains)))


def _peak(rate: Series) -> int:
    """The first step at which the rate is within 1 % of its highest."""
    return int(rate.steps[int(np.argmax(rate.values >= 0.99 * np.nanmax(rate.values)))])


def _least_squares(columns: Floats, loss: Floats) -> tuple[tuple[float, float, float], float] | None:
    """Coefficients with A and C not below zero, and the root mean square of what is left."""
    for used in ((0, 1, 2), (0, 1)):
        solved = np.linalg.lstsq(columns[:, used], loss, rcond=None)[0]
        if np.all(np.isfinite(solved)) and np.all(solved[1:] >= 0.0):
            rms = float(np.sqrt(np.mean((columns[:, used] @ solved - loss) ** 2)))
            full = [*(float(x) for x in solved), 0.0][:3]
            return (full[0], full[1], full[2]), rms
    return None
