"""Pictures that stand in lists."""

from __future__ import annotations

import numpy as np
from sqlalchemy.orm import Session

from service.database.models import Run
from service.judgements.view import UnknownReferenceError
from web.content.gaps import gap_of
from web.content.scene import TRAIN
from web.figures.sparkline import sparkline

POINTS = 66  # one for every second pixel


def small_gap(session: Session, run: Run) -> str:
    """The gap of a run's training loss as an SVG; an empty one where there is none."""
    try:
        gap = gap_of(session, run, TRAIN, POINTS)
    except UnknownReferenceError:
        return sparkline(np.zeros(0), None)
    return sparkline(gap.gap, gap.tolerance.value if gap.tolerance else None)
