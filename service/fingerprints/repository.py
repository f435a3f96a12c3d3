"""Reading row fingerprints back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Table, bindparam, delete, func, or_, select
from sqlalchemy.orm import Session

from service.database.models import Fingerprint
from service.detect.facts import HeldoutHits
from service.detect.inputs import RowReadings
from service.fingerprints.hashes import pack, unpack
from service.fingerprints.readings import Reading, combine, merge
from service.series.lineage import lineage
from service.series.live import NO_LIMIT, live_limits
from service.series.packing import compress, decompress_ints

# A live run sends a few hashes a second for months: sendings are joined before there are thousands to read.
MOST_SENDINGS = 64
LARGE = 16_384  # hashes in a sending that is not joined again
LONG = 24  # windows in one row, some 1,500 tokens: a document, not a quotation
PASSAGE = 3  # windows of a held-out set in one row, 1 in 64 looked for: some 200 tokens, more than boilerplate has


_TABLE: Table = Fingerprint.__table__  # pyright: ignore[reportAssignmentType]
_ROWS_OF = (_TABLE.c.run_id.in_(bindparam("runs", expanding=True)), _TABLE.c.kind == bindparam("kind"))
_COUNT = select(func.count()).select_from(_TABLE).where(*_ROWS_OF)
_COUNTS = (
    select(_TABLE.c.run_id, _TABLE.c.kind, func.count(), func.min(_TABLE.c.id), func.max(_TABLE.c.id))
    .where(_TABLE.c.run_id.in_(bindparam("runs", expanding=True)))
    .group_by(_TABLE.c.run_id, _TABLE.c.kind)
)
_SENDINGS = (
    select(
        _TABLE.c.id,
        _TABLE.c.segment_id,
        _TABLE.c.kind,
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
    kind: str
    host: int
    sample: int
    steps: bytes
    hashes: bytes
    seen: bytes

    def reading(self, limit: int) -> Reading:
        """What it says, unpacked. Steps beyond `limit` do not count."""
        return _reading(self.kind, self.host, self.sample, self.steps, self.hashes, self.seen, limit)


@dataclass(slots=True)
class _Met:
    """What was met of one held-out set."""

    passages: list[Reading] = field(default_factory=list[Reading])
    rate: int = 1
    windows: int = 0
    rows: int = 0
    windows_met: int = 0
    long: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])  # by hash: first step, windows

    def add(self, reading: Reading, counts: NDArray[np.int64], rate: int, windows: int) -> None:
        """One more sending; `counts` (n,) windows in each row that it tells of."""
        live, long = reading.steps <= reading.limit, counts >= PASSAGE
        self.rows += int(np.count_nonzero(live))
        self.windows_met += int(counts[live].sum())
        self.passages.append(replace(reading, steps=reading.steps[long], hashes=reading.hashes[long]))
        for at in np.flatnonzero(live & (counts >= LONG)).tolist():
            step, count = self.long.get(int(reading.hashes[at]), (int(reading.steps[at]), 0))
            self.long[int(reading.hashes[at])] = (min(step, int(reading.steps[at])), max(count, int(counts[at])))
        self.rate, self.windows = max(self.rate, rate), max(self.windows, windows)

    def hits(self) -> HeldoutHits:
        """All of it together."""
        made = combine(self.passages)
        assert made is not None
        long = np.array(sorted(self.long.values()), np.int64).reshape(-1, 2)
        return HeldoutHits(
            made.steps, made.hashes, 1, made.seen_steps, made.seen_rows, None, self.rate, self.windows, self.rows,
            self.windows_met, long[:, 0], long[:, 1],
        )  # fmt: skip


class FingerprintRepository:
    """Fingerprints of runs. A forked run's begin with its parent's."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, run_id: int, kind: str = "rows") -> RowReadings | None:
        """The sampled rows, or windows, of the run's live steps; None if no host ever sent any."""
        line = lineage(self._session, run_id)
        limits = live_limits(line.segments)
        stored = self.sendings(line.run_ids, kind=kind)
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
        sets: dict[str, _Met] = {}
        for row in self._session.scalars(found):
            if row.segment_id in limits:
                limit = limits[row.segment_id]
                # Every row is looked through and told once, whichever of the windows it holds.
                reading = _reading(row.kind, row.host, 1, row.steps, row.hashes, row.seen, limit)
                counts = np.full(len(reading.steps), PASSAGE) if row.counts is None else decompress_ints(row.counts)
                sets.setdefault(row.set_name or "", _Met()).add(reading, counts, row.sample, row.windows or 0)
        return {name: met.hits() for name, met in sets.items()}

    def sendings(self, run_ids: Sequence[int], from_id: int = 0, kind: str = "rows") -> list[Sending]:
        """What is stored of runs, rows or windows, in order of arrival, from an id on."""
        rows = self._session.connection().execute(_SENDINGS, {"runs": run_ids, "from_id": from_id, "kind": kind})
        return [Sending(*row) for row in rows]

    def count(self, run_ids: Sequence[int], kind: str = "rows") -> int:
        """How many sendings of sampled fingerprints are stored of runs."""
        return self._session.connection().execute(_COUNT, {"runs": run_ids, "kind": kind}).scalar() or 0

    def counts(self, run_ids: Sequence[int]) -> dict[tuple[int, str], tuple[int, int, int]]:
        """Of each run and kind: how many sendings are stored, and the first and the last of them."""
        rows = self._session.connection().execute(_COUNTS, {"runs": run_ids})
        return {(run, kind): (count, first, last) for run, kind, count, first, last in rows}

    def join(self, run_id: int) -> int:
        """Join the small sendings of each segment and host where there are many. Returns how many rows went.

        What `rows` answers stays the same: a hash counts as often as the sending that holds it most often holds it. The
        run's seal task must be claimed.
        """
        # Of held-out sets only what met nothing is joined: hits are few, and each keeps its count.
        mine = or_(Fingerprint.kind.in_(("rows", "windows")), Fingerprint.points == 0)
        small = (Fingerprint.run_id == run_id, mine, Fingerprint.points < LARGE)
        lane = (
            Fingerprint.segment_id, Fingerprint.host, Fingerprint.sample, Fingerprint.kind, Fingerprint.set_name,
            Fingerprint.windows,
        )  # fmt: skip
        many = select(*lane).where(*small).group_by(*lane).having(func.count() > MOST_SENDINGS)
        gone = 0
        for segment_id, host, sample, kind, set_name, windows in self._session.execute(many).all():
            same = (
                column.is_not_distinct_from(value) for column, value in zip(lane[4:], (set_name, windows), strict=True)
            )
            rows = self._session.execute(
                select(Fingerprint.id, Fingerprint.steps, Fingerprint.hashes, Fingerprint.seen)
                .where(*small, lane[0] == segment_id, lane[1] == host, lane[2] == sample, lane[3] == kind, *same)
                .order_by(Fingerprint.id)
                .limit(4 * MOST_SENDINGS)
            ).all()
            steps, hashes, seen = merge([_reading(kind, host, sample, *row[1:], NO_LIMIT) for row in rows])
            self._session.execute(
                delete(Fingerprint).where(Fingerprint.id.in_([row.id for row in rows])),
                execution_options={"synchronize_session": False},
            )
            self._session.add(
                Fingerprint(
                    run_id=run_id,
                    segment_id=segment_id,
                    kind=kind,
                    host=host,
                    set_name=set_name,
                    windows=windows,
                    sample=sample,
                    points=len(hashes),
                    steps=compress(steps),
                    hashes=pack(kind, hashes),
                    counts=compress(np.empty(0, np.int64)) if kind == "heldout_hits" else None,
                    seen=seen.tobytes(),
                )
            )
            gone += len(rows) - 1
        self._session.flush()
        return gone


def _reading(kind: str, host: int, sample: int, steps: bytes, hashes: bytes, seen: bytes, limit: int) -> Reading:
    return Reading(
        host,
        sample,
        decompress_ints(steps),
        unpack(kind, hashes),
        np.frombuffer(seen, np.int64).reshape(-1, 3),
        limit,
        kind != "rows",
    )
