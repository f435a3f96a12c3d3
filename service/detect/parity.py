"""The run's first losses beside the reference's first losses, at equal tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .inputs import Floats, Ints, RunView, Series

FIRST_STEPS = 10  # after the run's first update
PER_STEP = 1e-3  # of a step's tokens: points this near are at equal tokens


@dataclass(frozen=True, slots=True)
class FirstLosses:
    """Pairs (n,) within the run's first 10 updates: `steps` and `tokens` of the run, `gap` (run minus reference)."""

    steps: Ints
    tokens: Floats
    gap: Floats

    def __len__(self) -> int:
        return len(self.gap)

    def se(self, noise_sd: float | None) -> float | None:
        """Standard error of the mean gap: of unrelated batches with the noise of one step, or as the pairs show it
        where that is less (equal batches); None where neither is known."""
        known = [float(noise_sd * np.sqrt(2.0 / len(self)))] if noise_sd else []
        if len(self) >= 4:
            known.append(float(self.gap.std(ddof=1) / np.sqrt(len(self))))
        return min(known) if known else None


def first_losses(view: RunView, metric: str) -> FirstLosses | None:
    """The first finite pairs; None where the run has no points so early, or the reference none at equal tokens."""
    run, reference = view.metrics.get(metric), view.reference.get(metric)
    if run is None or reference is None or len(run) == 0 or len(reference) == 0:
        return None
    start = min((s.start_step for s in view.segments), default=0)
    end = int(np.searchsorted(run.steps, start + FIRST_STEPS, side="right"))
    early = Series(run.steps[:end], run.tokens[:end], run.values[:end])
    if len(early) == 0:
        return None
    at, met = beside(early.tokens, reference.tokens, step_tokens(run))
    gap = early.values - np.where(met, reference.values[at], np.nan)
    keep = np.isfinite(gap)
    return FirstLosses(early.steps[keep], early.tokens[keep], gap[keep]) if keep.any() else None


def beside(tokens: Floats, theirs: Floats, per_step: float) -> tuple[Ints, np.ndarray]:
    """The nearest point of the reference to each of `tokens` (n,), and whether it is at equal tokens."""
    right = np.clip(np.searchsorted(theirs, tokens), 0, len(theirs) - 1)
    left = np.maximum(right - 1, 0)
    at = np.where(np.abs(theirs[left] - tokens) <= np.abs(theirs[right] - tokens), left, right).astype(np.int64)
    return at, np.abs(theirs[at] - tokens) <= PER_STEP * per_step


def step_tokens(run: Series) -> float:
    """Tokens of one of the run's first steps; 1 where they are not known."""
    if len(run) > 1:
        moved = np.diff(run.tokens[:64]) / np.maximum(np.diff(run.steps[:64]), 1)
        usual = float(np.median(moved))
        return usual if np.isfinite(usual) and usual > 0.0 else 1.0
    return float(run.tokens[0] / run.steps[0]) if len(run) and run.steps[0] > 0 and run.tokens[0] > 0.0 else 1.0
