"""When an episode began, from the onsets of all the rules that see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Body = Mapping[str, Any]
Onset = tuple[list[float], list[Any] | None]


def joint_onset(judgements: Iterable[Body]) -> Onset | None:
    """The earliest onset, narrowed by every onset that overlaps it: [earliest, latest] step, and tokens where known.

    `judgements` are JSON bodies; those without an onset are passed over. A drift places its beginning within a block of
    steps, repeated rows to the step: seen together they began at that step.
    """
    found = sorted((body for body in judgements if body.get("since_step")), key=lambda body: list(body["since_step"]))
    if not found:
        return None
    low, high = found[0]["since_step"]
    first, last = found[0].get("since_tokens") or (None, None)
    for body in found[1:]:
        later_low, later_high = body["since_step"]
        if later_low > high:
            break  # sorted: what follows began later still
        later_first, later_last = body.get("since_tokens") or (None, None)
        if later_low > low:
            low, first = later_low, later_first
        if later_high < high:
            high, last = later_high, later_last
    return [low, high], None if first is None or last is None else [first, last]
