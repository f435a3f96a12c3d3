"""Reading row fingerprints back."""

from __future__ import annotations

import numpy as np
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from service.database.models import Fingerprint
from service.detect.inputs import RowReadings
from service.fingerprints.readings import Reading, combine, merge
from service.series.lineage import lineage
from service.series.live import NO_LIMIT, live_limits
from service.series.packing import compress, decompress_ints

# A live run sends a few hashes a second for months: sendings are joined before there are thousands to read.
MOST_SENDINGS = 64
LARGE = 16_384  # hashes in a sending that is not joined again


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
        readings = [_reading(*row[1:], limits[row[0]]) for row in stored if row[0] in limits]
        return combine(readings)

    def join(self, run_id: int) -> int:
        """Join the small sendings of each segment and host where there are many. Returns how many rows went.

        What `rows` answers stays the same: a hash counts as often as the sending that holds it most often holds it. The
        run's seal task must be claimed.
        """
        small = (Fingerprint.run_id == run_id, Fingerprint.kind == "rows", Fingerprint.points < LARGE)
        lane = (Fingerprint.segment_id, Fingerprint.host, Fingerprint.sample)
        many = select(*lane).where(*small).group_by(*lane).having(func.count() > MOST_SENDINGS)
        gone = 0
        for segment_id, host, sample in self._session.execute(many).all():
            rows = self._session.execute(
                select(Fingerprint.id, Fingerprint.steps, Fingerprint.hashes, Fingerprint.seen)
                .where(*small, lane[0] == segment_id, lane[1] == host, lane[2] == sample)
                .order_by(Fingerprint.id)
                .limit(4 * MOST_SENDINGS)
            ).all()
            steps, hashes, seen = merge([_reading(host, sample, *row[1:], NO_LIMIT) for row in rows])
            self._session.execute(
                delete(Fingerprint).where(Fingerprint.id.in_([row.id for row in rows])),
                execution_options={"synchronize_session": False},
            )
            self._session.add(
                Fingerprint(
                    run_id=run_id,
                    segment_id=segment_id,
                    kind="rows",
                    host=host,
                    sample=sample,
                    points=len(hashes),
                    steps=compress(steps),
                    hashes=hashes.tobytes(),
                    seen=seen.tobytes(),
                )
            )
            gone += len(rows) - 1
        self._session.flush()
        return gone


def _reading(host: int, sample: int, steps: bytes, hashes: bytes, seen: bytes, limit: int) -> Reading:
    return Reading(
        host,
        sample,
        decompress_ints(steps),
        np.frombuffer(hashes, np.uint64),
        np.frombuffer(seen, np.int64).reshape(-1, 3),
        limit,
    )
