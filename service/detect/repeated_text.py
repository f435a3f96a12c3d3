"""Text that is read again, told by windows of 32 tokens: also where it was packed into other rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .cache import LevelCache
from .inputs import RunView
from .rows import BACKGROUND_READINGS, RowFinding, RowWatch

# Licences, menus, tables: 32 tokens come again in any corpus, far more often than whole rows do.
NATURAL_SHARE = 0.05
HIGHEST_NATURAL_SHARE = 0.15  # an early background above this is no background


def find(view: RunView, cache: LevelCache | None = None) -> RowFinding | None:
    """Judge the window readings of a view as `rows.find` does rows; None where none were sent. `sampled`, `repeats` and
    `distinct` count windows; a share of 5 times the natural one, a quarter at least, opens an episode. What is natural
    can be set as the limit `repeated_text`."""
    readings = view.windows
    if readings is None or (len(readings.hashes) == 0 and len(readings.seen_steps) == 0):
        return None
    return (TextWatch() if cache is None else cache.kept(TextWatch)).find(view, readings)


@dataclass(slots=True)
class TextWatch(RowWatch):
    """The window readings of one run while it grows."""

    def _natural(self, view: RunView, n: int) -> tuple[float, str]:
        if n >= BACKGROUND_READINGS:
            upto = int(np.searchsorted(self._repeats.where.array, BACKGROUND_READINGS))
            share = int(np.count_nonzero(self._repeats.counted.array[:upto])) / BACKGROUND_READINGS
            if NATURAL_SHARE < share <= HIGHEST_NATURAL_SHARE:
                return view.limit("repeated_text", share, f"this run's first {BACKGROUND_READINGS:,} sampled windows")
        return view.limit("repeated_text", NATURAL_SHARE, "assumed: boilerplate and quotations in a corpus")
