"""Reading row fingerprints back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Table, bindparam, delete, func, select
from sqlalchemy.orm import Session

from service.database.models import Fingerprint
from service.detect.facts import HeldoutHits
from service.detect.inputs import RowReadings
from service.fingerprints.readings import Reading, combine, merge
from service.series.lineage import lineage
from service.series.live import NO_LIMIT, live_limits
from service.series.packing import compress, decompress_ints

# A live run sends a few hashes a second for months: sendings are joined before there are thousands to read.
MOST_SENDINGS = 64
LARGE = 16_384  # hashes in a sending that is not joined again


_TABLE: Table = Fingerprint.__table__  # pyright: ignore[reportAssignmentType]
_ROWS_OF = (_TABLE.c.run_id.in_(bindparam("runs", expanding=True)), _TABLE.c.kind == "rows")
_COUNT = select(func.count()).select_from(_TABLE).where(*_ROWS_OF)
_SENDINGS = (
    select(
        _TABLE.c.id,
        _TABLE.c.segment_id,
        _TABLE.c.host,
        _TABLE.c.sample,
        _TABLE.c.steps,
        _TABLE.c.hashes,
        _TABLE.c.seen,
    )
    .where(*_ROWS_OF, _TABLE.c.id >= bindparam("from_id"))
    .order_by(_TABLE.c.id)
)


@dataclass(frozen=True, slots=True)
class Sending:
    """One stored row: what one host of one segment sent at once, packed."""

    id: int
    segment: int
    host: int
    sample: int
    steps: bytes
    hashes: bytes
    seen: bytes

    def reading(self, limit: int) -> Reading:
        """What it says, unpacked. Steps beyond `limit` do not count."""
        return _reading(self.host, self.sample, self.steps, self.hashes, self.seen, limit)


class FingerprintRepository:
    """Fingerprints of runs. A forked run's begin with its parent's."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, run_id: int) -> RowReadings | None:
        """The sampled rows of the run's live steps; None if no host ever sent any."""
        line = lineage(self._session, run_id)
        limits = live_limits(line.segments)
        stored = self.sendings(line.run_ids)
        return combine([sending.reading(limits[sending.segment]) for sending in stored if sending.segment in limits])

    def heldout_hits(self, run_id: int) -> dict[str, HeldoutHits]:
        """Windows of held-out sets that were met in rows of live steps, by set; {} where nobody looks for them."""
        line = lineage(self._session, run_id)
        limits = live_limits(line.segments)
        found = (
            select(Fingerprint)
            .where(Fingerprint.run_id.in_(line.run_ids), Fingerprint.kind == "heldout_hits")
            .order_by(Fingerprint.id)
        )
        sets: dict[str, list[Reading]] = {}
        samples: dict[str, int] = {}
        for row in self._session.scalars(found):
            if row.segment_id in limits:
                name = row.set_name or ""
                # Which windows are looked for is not told by their hashes, so none is left out by its number.
                reading = _reading(row.host, 1, row.steps, row.hashes, row.seen, limits[row.segment_id])
                sets.setdefault(name, []).append(reading)
                samples[name] = max(samples.get(name, 1), row.sample)
        made = {name: combine(readings) for name, readings in sets.items()}
        return {
            name: HeldoutHits(rows.steps, rows.hashes, samples[name], rows.seen_steps, rows.seen_rows)
            for name, rows in made.items() if rows is not None
        }  # fmt: skip

    def sendings(self, run_ids: Sequence[int], from_id: int = 0) -> list[Sending]:
        """The stored rows of runs in order of arrival, from an id on."""
        rows = self._session.connection().execute(_SENDINGS, {"runs": run_ids, "from_id": from_id})
        return [Sending(*row) for row in rows]

    def count(self, run_ids: Sequence[int]) -> int:
        """How many rows of sampled fingerprints are stored of runs."""
        return self._session.connection().execute(_COUNT, {"runs": run_ids}).scalar() or 0

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
