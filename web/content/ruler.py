"""Where points stand on the horizontal axis: by tokens, steps or wall time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.series.repository import Overview
from web.figures.curve import Floats
from web.figures.layout import AxisKind

MARGIN = 0.03  # of the run's width, left free on both sides
NONE: Floats = np.empty(0)


@dataclass(frozen=True, slots=True)
class Ruler:
    """Places points on the horizontal axis. `steps`, `tokens` and `times` (n,) are the run's own, ascending; times are
    in milliseconds since 1970, empty where they are not needed.

    A reference is placed at equal tokens: on the other axes that is where the run had the same tokens.
    """

    kind: AxisKind
    steps: Floats
    tokens: Floats
    times: Floats = field(default_factory=lambda: NONE)

    @classmethod
    def from_overviews(cls, kind: AxisKind, train: Overview | None, times: Overview | None) -> Ruler:
        """The ruler of a run from its training loss (or any other series) and its `axis/time`."""
        if train is None:
            return cls(kind, NONE, NONE)
        k = np.isfinite(train.tokens)
        if kind != "tokens" and not k.any():
            k = np.ones(len(train), np.bool_)
        steps, tokens = train.steps[k].astype(np.float64), train.tokens[k]
        tokens = tokens if np.isfinite(tokens).all() else NONE
        if kind != "time":
            return cls(kind, steps, tokens)
        if times is None or not len(times):
            return cls(kind, NONE, NONE)
        at = np.interp(steps, times.steps.astype(np.float64), np.maximum.accumulate(times.last) * 1000.0)
        return cls(kind, steps, tokens, at)

    @property
    def own(self) -> Floats:
        """The run's places on this axis, (n,)."""
        return {"tokens": self.tokens, "steps": self.steps, "time": self.times}[self.kind]

    def of(self, steps: NDArray[np.int64], tokens: Floats) -> Floats:
        """Points of the run, (n,); NaN where their place is not known."""
        if self.kind == "tokens":
            return tokens
        return self._at(steps.astype(np.float64))

    def of_reference(self, steps: NDArray[np.int64], tokens: Floats) -> Floats:
        """Points of the reference, (n,)."""
        if self.kind == "tokens":
            return tokens
        if len(self.tokens) < 2 or len(self.own) < 2:
            return steps.astype(np.float64) if self.kind == "steps" else np.full(len(steps), np.nan)
        return _beyond(tokens, self.tokens, self.own)

    def of_step(self, step: float) -> float:
        """One step of the run."""
        if self.kind == "steps" or len(self.own) == 0:
            return float(step)
        return float(np.interp(step, self.steps, self.own))

    def steps_of(self, window: tuple[float, float]) -> tuple[int, int] | None:
        """The steps (first, last) that a part of the axis holds, with a tenth of its width and one of the ruler's own
        marks more at both ends; None where that is not known."""
        more = (window[1] - window[0]) / 10
        window = (window[0] - more, window[1] + more)
        if self.kind == "steps":
            return max(int(window[0]), 0), max(int(np.ceil(window[1])), 0)
        if len(self.own) < 2:
            return None
        low = int(np.searchsorted(self.own, window[0], "right")) - 1
        high = int(np.searchsorted(self.own, window[1], "left"))
        first = 0 if low < 1 else int(self.steps[low - 1])
        last = int(self.steps[min(high + 1, len(self.steps) - 1)])
        return (first, last) if high < len(self.own) else (first, 2**53)

    def range(self) -> tuple[float, float] | None:
        """The run's extent with a margin, None where nothing is known yet."""
        ends = self.own
        if len(ends) == 0:
            return None
        low, high = float(ends[0]), float(ends[-1])
        pad = MARGIN * (high - low) or max(abs(high) * 0.1, 1.0)
        return low - pad, high + pad

    def _at(self, steps: Floats) -> Floats:
        if self.kind == "steps":
            return steps
        return np.interp(steps, self.steps, self.own) if len(self.own) else np.full(len(steps), np.nan)


def _beyond(x: Floats, known: Floats, places: Floats) -> Floats:
    """Interpolation that goes on at the mean pace beyond both ends."""
    pace = (places[-1] - places[0]) / max(known[-1] - known[0], 1e-9)
    placed = np.interp(x, known, places)
    placed += np.minimum(x - known[0], 0) * pace + np.maximum(x - known[-1], 0) * pace
    return placed
