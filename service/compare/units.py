"""Losses that are not in the reference's unit: what else two curves may be in, told from their first common points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .align import Level, SeriesLike, align, head

Floats = NDArray[np.float64]

POINTS = 64
LEAST_POINTS = {"noisy": 16, "evaluation": 3}
NEAR = 0.03  # of the reference's loss: as near as that a converted loss must come
APART = 0.10  # and so far off it must be as it stands
BYTES_PER_TOKEN = (2.5, 7.0)
STEADY = 0.05  # relative spread of the ratio of one loss to the same in another unit


def other_unit(run: SeriesLike, reference: Level) -> str | None:
    """What the run's loss seems to be in, where the reference's is in nats per token: "perplexity", "bits per token" or
    "bits per byte"; None where it is in nats, or not known. Causal: it rests on the first 64 common points."""
    placed = align(head(run, reference, POINTS), reference)
    finite = np.isfinite(placed.run) & np.isfinite(placed.reference) & (placed.run > 0.0) & (placed.reference > 0.0)
    mine, theirs = placed.run[finite], placed.reference[finite]
    if len(mine) < LEAST_POINTS[reference.kind] or _apart(mine, theirs) < APART:
        return None
    if _apart(np.log(mine), theirs) < NEAR:
        return "perplexity"
    if _apart(mine * np.log(2.0), theirs) < NEAR:
        return "bits per token"
    ratio = theirs / (mine * np.log(2.0))
    middle = float(np.median(ratio))
    steady = float(np.median(np.abs(ratio - middle))) < STEADY * middle
    return "bits per byte" if steady and BYTES_PER_TOKEN[0] < middle < BYTES_PER_TOKEN[1] else None


def _apart(mine: Floats, theirs: Floats) -> float:
    """Median distance, as a share of the reference's loss."""
    return float(np.median(np.abs(mine - theirs) / theirs))
