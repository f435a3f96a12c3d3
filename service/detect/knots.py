"""Did the reference itself move where the gap did? At a stitch of two recordings, or where its schedule bends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.compare.noise import step_noise

from .facts import Knot
from .gaps import DriftEpisode, TrainGap
from .inputs import Series

SIDE = 200  # points on each side of the place
MIN_SIDE = 5
MOST = 0.01  # of the reference's tokens that one side may reach
SHARE = 0.5  # of the gap that the reference made by its own move, at least; and of that the run made, at most
SURE = 2.0


@dataclass(frozen=True, slots=True)
class Moved:
    """The reference moved at `knot` by `reference` (± `se`) and the run by `run`, in the metric's unit."""

    knot: Knot
    reference: float
    se: float
    run: float

    @property
    def gap(self) -> float:
        """What the reference's move alone makes of the gap."""
        return -self.reference


def moved_at(run: Series, reference: Series, train: TrainGap, knots: Sequence[Knot]) -> Moved | None:
    """The move of the reference that explains the open drift; None where none does.

    It does where a knot lies within the onset, the reference moved there by surely more than half of the gap and the
    run by less than half as much, and the newest gap is what that move makes of it, within the tolerance in force."""
    episode = train.open
    if episode is None or not knots:
        return None
    low, high = _span(train, episode)
    for knot in knots:
        if not low <= knot.tokens <= high:
            continue
        theirs, mine = _move(reference, knot.tokens), _move(run, knot.tokens)
        if theirs is None or mine is None:
            continue
        (jump, se), (own, _) = theirs, mine
        before = train.blocks.mean[max(episode.before - 20, 0) : episode.before + 1]
        settled = float(np.median(before)) if len(before) else 0.0
        left = float(np.median(train.blocks.mean[-2:])) - settled + jump
        moved = float(np.median(train.blocks.mean[episode.first :])) - settled
        surely = abs(jump) - SURE * se > SHARE * abs(moved) and jump * moved < 0.0
        if surely and abs(own) < SHARE * abs(jump) and abs(left) <= float(train.limit[-1]) + SURE * se:
            return Moved(knot, jump, se, own)
    return None


def _span(train: TrainGap, episode: DriftEpisode) -> tuple[float, float]:
    blocks = train.blocks
    return float(blocks.first_tokens[max(episode.before, 0)]), float(blocks.last_tokens[episode.first])


def _move(series: Series, tokens: float) -> tuple[float, float] | None:
    """Median behind a place minus median before it, the trend taken out, and its standard error."""
    place = int(np.searchsorted(series.tokens, tokens))
    reach = MOST * float(series.tokens[-1] - series.tokens[0])
    start = max(place - SIDE, int(np.searchsorted(series.tokens, tokens - reach)))
    end = min(place + SIDE, int(np.searchsorted(series.tokens, tokens + reach)))
    sides = [part[np.isfinite(part)] for part in (series.values[start:place], series.values[place:end])]
    if min(len(side) for side in sides) < MIN_SIDE:
        return None
    noise = max(step_noise(side) or 0.0 for side in sides)
    se = float(np.sqrt(np.pi / 2.0) * noise * np.sqrt(sum(1.0 / len(side) for side in sides)))
    drop = float(np.median(sides[1]) - np.median(sides[0]))
    trend = sum(_half_trend(side) for side in sides)
    return drop - trend, se


def _half_trend(side: np.ndarray) -> float:
    """How far a side's own trend goes from its middle to the place: halves of it compared."""
    half = len(side) // 2
    if half < MIN_SIDE:
        return 0.0
    return float(np.median(side[half:]) - np.median(side[:half]))
