"""Whose weights an evaluator looked at, where it does not say. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.ingest.requests import Batch
from service.series.journal import TIME
from service.series.live import SegmentInfo


def weights_at(
    batch: Batch, checkpoints: Sequence[tuple[int, int, float]], trainers: Sequence[SegmentInfo]
) -> NDArray[np.int64] | None:
    """The segment id for each step of an evaluator's batch, 0 where it is unknown; None if all are.

    It is the segment of the newest checkpoint (step, segment id, unix seconds; oldest first) of that step that was
    there when the evaluation was done; else the newest trainer (given oldest first) that had started by then, before
    that step.
    """
    times = batch.axis(TIME)
    assert times is not None
    found = np.zeros(len(batch.steps), np.int64)
    for index, (step, sent_time) in enumerate(zip(batch.steps.tolist(), times.tolist(), strict=True)):
        time = sent_time + batch.clock_offset
        saved = [segment for at_step, segment, at in checkpoints if at_step == step and at <= time]
        started = [trainer.id for trainer in trainers if trainer.started_at <= time and trainer.start_step < step]
        found[index] = (saved or started or [0])[-1]
    return found if found.any() else None
