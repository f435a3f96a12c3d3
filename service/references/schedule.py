"""A reference's learning-rate schedule: pieces of known formulas, evaluated at any step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field

FORMULAS = {
    "constant_with_warmup": "s < w: p·s/w; else p",
    "linear_with_warmup": "s < w: p·s/w; else p − (p − f·p)·(s − w)/(T − w)",
    "cosine_with_warmup": "s < w: p·s/w; else f·p + (p − f·p)·(1 + cos(π·(s − w)/(T − w)))/2",
    "half_cosine_with_warmup": "s < w: p·s/w; else f·p + (p − f·p)·(1 + cos(π·(s − w + t)/(2t)))/2 with t = T − w",
}
Kind = Literal["constant_with_warmup", "linear_with_warmup", "cosine_with_warmup", "half_cosine_with_warmup"]


class Piece(BaseModel):
    """One formula, from `from_step` of a stage until its next piece.

    In the formulas s is the step, p `peak`, w `warmup_steps`, f `final_fraction`, T `total_steps`; from step T on the
    value stays f·p. The value at s is the one set before the update with global_step = s, as AI2's OLMo-core does it
    (schedulers CosWithWarmup, HalfCosWithWarmup, LinearWithWarmup).
    """

    model_config = ConfigDict(extra="forbid")

    stage: str
    from_step: Annotated[int, Field(ge=0)]
    kind: Kind
    peak: Annotated[float, Field(gt=0)]
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    final_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    total_steps: Annotated[int, Field(gt=0)]

    @property
    def formula(self) -> str:
        """The formula in words of p, w, f, T and s."""
        return FORMULAS[self.kind]

    def at(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Learning rate at each of `steps` (float64, any shape)."""
        floor = self.peak * self.final_fraction
        length = max(self.total_steps - self.warmup_steps, 1)
        done = np.clip(steps - self.warmup_steps, 0, length)
        match self.kind:
            case "constant_with_warmup":
                after = np.full_like(steps, self.peak)
            case "linear_with_warmup":
                after = self.peak - (self.peak - floor) * done / length
            case "cosine_with_warmup":
                after = floor + (self.peak - floor) * (1 + np.cos(np.pi * done / length)) / 2
            case "half_cosine_with_warmup":
                after = floor + (self.peak - floor) * (1 + np.cos(np.pi * (done + length) / (2 * length))) / 2
        return np.where(steps < self.warmup_steps, self.peak * steps / max(self.warmup_steps, 1), after)


def learning_rate(pieces: Sequence[Piece], stage: str, steps: ArrayLike) -> NDArray[np.float64] | None:
    """The schedule's value at each of `steps` (float64, same shape), None if the stage has no schedule."""
    own = sorted((piece for piece in pieces if piece.stage == stage), key=lambda piece: piece.from_step)
    if not own:
        return None
    at = np.asarray(steps, np.float64)
    values = np.full_like(at, np.nan)
    for piece in own:
        values = np.where(at >= piece.from_step, piece.at(at), values)
    return values
