"""Whether a run has gone past the end of what its reference has of a metric: from there on nothing is compared."""

from __future__ import annotations

import numpy as np

from .cache import LevelCache
from .inputs import RunView

MARGIN = 0.02  # of the reference's tokens: series of finished runs do not all end at the same point


def beyond_reference(view: RunView, metric: str, cache: LevelCache) -> str | None:
    """In words, where the reference's series of `metric` ends, for a run that is more than 2 % of it and more than one
    distance of its last points ahead; None else."""
    run, reference = view.metrics.get(metric), view.reference.get(metric)
    if run is None or reference is None or len(run) == 0 or len(reference) == 0:
        return None
    points = cache.get(metric, reference).points
    if len(points) == 0:
        return None
    end = float(points[-1])
    margin = max(MARGIN * (end - float(points[0])), end - float(points[-2])) if len(points) > 1 else MARGIN * end
    if not float(run.tokens[-1]) - end > margin:
        return None
    at = max(int(np.searchsorted(run.tokens, end, side="right")) - 1, 0)
    name = view.reference_name or "the reference"
    return f"{metric} of {name} ends where the run was at step {int(run.steps[at]):,}"
