"""Which checkpoints a report shows: those that were asked for, else a few that tell a run's story. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHARES = (0.5, 0.25, 0.75, 0.1)  # of the way, in the order in which they are worth a column
USUAL = 6
MOST = 24  # of one report
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_PLACE = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmbt]?)\s*(steps?|tokens?)?", re.IGNORECASE)


class PlaceError(ValueError):
    """A place that cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """A step, or a number of tokens on the project's axis."""

    value: float
    tokens: bool
    text: str


def places(text: str) -> list[Place]:
    """`735000, 1.5T`: plain numbers are steps, those with k, M, B or T tokens; `3k steps` and `5e9 tokens` say it.

    Raises:
        PlaceError: one of them is neither.
    """
    found: list[Place] = []
    for entry in (part.strip() for part in text.split(",")):
        match = _PLACE.fullmatch(entry)
        if match is None:
            raise PlaceError(f"{entry!r} is no step and no number of tokens; write 735000, 1.5T, or both: 735000,1.5T")
        number, scale, word = match.groups()
        named = word.lower() if word else ""
        tokens = named.startswith("token") or (not named and scale != "")
        found.append(Place(float(number) * _SCALES[scale.lower()], tokens, entry))
    if len(found) > MOST:
        raise PlaceError(f"{len(found)} checkpoints are too many for one report; {MOST} is the most")
    return found


def asked(wanted: Sequence[Place], steps: NDArray[np.int64], tokens: NDArray[np.float64]) -> dict[int, str]:
    """The nearest of the checkpoints `steps` (n,), ascending, with `tokens` (n,): index -> what it was chosen for."""
    chosen: dict[int, list[str]] = {}
    for place in wanted:
        axis = tokens if place.tokens else steps.astype(np.float64)
        known = np.flatnonzero(np.isfinite(axis))
        if len(known):
            at = int(known[np.argmin(np.abs(axis[known] - place.value))])
            chosen.setdefault(at, []).append(place.text)
    return {at: "nearest to " + ", ".join(texts) for at, texts in sorted(chosen.items())}


def usual(steps: NDArray[np.int64], onset: tuple[float, float] | None, raised: float | None) -> dict[int, str]:
    """The first checkpoint, those at some shares of the way, the last before an onset, the first after the alert, and
    the newest: index -> why, in order."""
    n = len(steps)
    if n == 0:
        return {}
    why: dict[int, str] = {0: "first", n - 1: "newest"}
    if onset is not None:
        before = int(np.searchsorted(steps, onset[0])) - 1
        if before >= 0:
            why.setdefault(before, "last before the onset")
    if raised is not None:
        after = int(np.searchsorted(steps, raised))
        if after < n:
            why.setdefault(after, "first after the alert")
    for share in SHARES:
        if len(why) == USUAL:
            break
        at = int(np.argmin(np.abs(steps - share * float(steps[-1]))))
        why.setdefault(at, f"{share:.0%} of the way")
    return dict(sorted(why.items()))
