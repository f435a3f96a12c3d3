"""Compares a source's own count of tokens with steps × tokens per step."""

from __future__ import annotations

import numpy as np

from service.detect.inputs import Floats, Ints
from service.references.description import Stage


class TokenCheck:
    """What one stage of a source says of its tokens."""

    def __init__(self) -> None:
        self._given: list[tuple[str, Ints, Floats]] = []

    def add(self, segment: str, steps: Ints, values: Floats) -> None:
        """Take what one segment says."""
        good = np.isfinite(values) & (steps > 0)
        self._given.append((segment, steps[good], values[good]))

    def per_step(self) -> int | None:
        """Tokens per step where every point says the same, None where nothing or different things are said."""
        ratios = [values / steps for _, steps, values in self._given]
        rates = np.concatenate(ratios) if ratios else np.empty(0)
        middle = float(np.median(rates)) if len(rates) else 0.0
        return round(middle) if middle >= 1.0 and abs(middle - round(middle)) < 1e-6 * middle else None

    def disagreement(self, stage: Stage) -> str | None:
        """Where the source's tokens are not steps × tokens per step, in one sentence."""
        wrong = 0
        first = ""
        for segment, steps, values in self._given:
            ours = steps.astype(np.float64) * stage.tokens_per_step
            off = np.abs(values - ours) > 1e-9 * ours
            if stage.token_offset:  # some trainers count on from the stage before
                off &= np.abs(values - stage.token_offset - ours) > 1e-9 * (ours + stage.token_offset)
            at = np.flatnonzero(off)
            if len(at) and not first:
                first = f"{segment} says {values[at[0]]:,.0f} at step {steps[at[0]]:,}, not {ours[at[0]]:,.0f}"
            wrong += len(at)
        if not wrong:
            return None
        return f"{stage.name}: the source's total tokens are not step x tokens per step at {wrong:,} points ({first})"
