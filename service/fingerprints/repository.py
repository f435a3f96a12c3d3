"""Reading row fingerprints back."""

from __future__ import annotations

import numpy as np
from pcodec.standalone import simple_decompress
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.database.models import Fingerprint
from service.detect.inputs import RowReadings
from service.fingerprints.readings import Reading, combine
from service.series.lineage import lineage
from service.series.live import live_limits


class FingerprintRepository:
    """Fingerprints of runs. A forked run's begin with its parent's."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, run_id: int) -> RowReadings | None:
        """The sampled rows of the run's live steps; None if no host ever sent any."""
        line = lineage(self._session, run_id)
        limits = live_limits(line.segments)
        stored = self._session.execute(
            select(
                Fingerprint.segment_id,
                Fingerprint.host,
                Fingerprint.sample,
                Fingerprint.steps,
                Fingerprint.hashes,
                Fingerprint.seen,
            )
            .where(Fingerprint.run_id.in_(line.run_ids), Fingerprint.kind == "rows")
            .order_by(Fingerprint.id)
        )
        return combine(
            [
                Reading(
                    host,
                    sample,
                    _unpacked(steps),
                    np.frombuffer(hashes, np.uint64),
                    np.frombuffer(seen, np.int64).reshape(-1, 3),
                    limits[segment_id],
                )
                for segment_id, host, sample, steps, hashes, seen in stored
                if segment_id in limits
            ]
        )


def _unpacked(steps: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    unpacked = simple_decompress(steps)
    return np.empty(0, np.int64) if unpacked is None else unpacked
