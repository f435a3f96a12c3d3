"""Row fingerprints of growing runs, kept between two readings: only what has come since is read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from service.compare.growing import Growing
from service.detect.inputs import RowReadings
from service.fingerprints.readings import Reading, combine
from service.fingerprints.repository import FingerprintRepository, Sending
from service.series.lineage import Lineage
from service.series.live import live_limits

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Columns:
    steps: Growing[np.int64]
    hosts: Growing[np.int64]
    hashes: Growing[np.uint64]
    seen_steps: Growing[np.int64]
    seen_rows: Growing[np.int64]

    def readings(self, sample: int) -> RowReadings:
        return RowReadings(
            self.steps.array, self.hosts.array, self.hashes.array, sample, self.seen_steps.array, self.seen_rows.array
        )


@dataclass(frozen=True, slots=True)
class _Kept:
    """`rows`: how many sendings were stored; `first`: the key of the oldest of them, `last`: the newest."""

    version: str
    identity: object
    rows: int
    first: int
    last: Sending
    readings: list[Reading]
    sample: int
    columns: _Columns


class GrowingRows:
    """The live row readings of runs, or with `kind` their windows. One thread uses it; `forget` what is no longer
    wanted."""

    def __init__(self, kind: str = "rows") -> None:
        self._kind = kind
        self._runs: dict[int, _Kept] = {}

    def read(self, session: Session, line: Lineage, counted: tuple[int, int, int] | None = None) -> RowReadings | None:
        """What `FingerprintRepository.rows` answers of a run, the last of its lineage. `counted`: what
        `FingerprintRepository.counts` says of a run that was forked from none; (0, 0, 0) where nothing is stored."""
        run_id = line.run_ids[-1]
        kept = self._runs.pop(run_id, None)
        if counted is not None:
            if counted[0] == 0:
                return None
            stands = (line.run_ids, line.segments)
            if kept is not None and kept.identity == stands and (kept.rows, kept.first, kept.last.id) == counted:
                kept = replace(kept, version=line.version)
        if kept is None or kept.version != line.version:
            repository = FingerprintRepository(session)
            rows = repository.count(line.run_ids, self._kind)
            limits = live_limits(line.segments)
            identity = (line.run_ids, line.segments)
            grown = None
            if kept is not None and kept.identity == identity:
                grown = _grown(
                    kept, repository.sendings(line.run_ids, kept.last.id, self._kind), rows, limits, line.version
                )
            kept = grown or _whole(
                repository.sendings(line.run_ids, kind=self._kind) if rows else [], limits, identity, line.version
            )
        if kept is None:
            return None
        self._runs[run_id] = kept
        return kept.columns.readings(kept.sample)

    def forget(self, run_id: int) -> None:
        """Keep nothing of a run."""
        self._runs.pop(run_id, None)

    def nbytes(self, run_id: int) -> int:
        """Bytes kept of a run."""
        kept = self._runs.get(run_id)
        return 0 if kept is None else 2 * sum(16 * len(reading.steps) for reading in kept.readings)


def _whole(sendings: list[Sending], limits: dict[int, int], identity: object, version: str) -> _Kept | None:
    readings = [sending.reading(limits[sending.segment]) for sending in sendings if sending.segment in limits]
    found = combine(readings)
    if found is None:
        return None
    columns = _Columns(
        Growing(found.steps), Growing(found.hosts), Growing(found.hashes), Growing(found.seen_steps),
        Growing(found.seen_rows),
    )  # fmt: skip
    return _Kept(version, identity, len(sendings), sendings[0].id, sendings[-1], readings, found.sample, columns)


def _grown(kept: _Kept, sendings: list[Sending], rows: int, limits: dict[int, int], version: str) -> _Kept | None:
    """What was kept with the sendings behind it, or None: sealing joins sendings, and SQLite may give the id of one
    that is gone to another. `sendings` begin with the last one that was kept."""
    if not sendings or sendings[0] != kept.last or kept.rows + len(sendings) - 1 != rows:
        return None
    new = [sending.reading(limits[sending.segment]) for sending in sendings[1:] if sending.segment in limits]
    readings, columns = [*kept.readings, *new], kept.columns
    if any(reading.sample != kept.sample for reading in readings):
        return None
    first = min((_first(reading) for reading in new), default=None)
    if first is not None:  # steps before that are as they were
        found = combine([_from(reading, first) for reading in readings if _last(reading) >= first])
        assert found is not None
        at, seen = np.searchsorted(columns.steps.array, first), np.searchsorted(columns.seen_steps.array, first)
        columns = _Columns(
            columns.steps.grown(int(at), found.steps), columns.hosts.grown(int(at), found.hosts),
            columns.hashes.grown(int(at), found.hashes), columns.seen_steps.grown(int(seen), found.seen_steps),
            columns.seen_rows.grown(int(seen), found.seen_rows),
        )  # fmt: skip
    return _Kept(version, kept.identity, rows, kept.first, sendings[-1], readings, kept.sample, columns)


def _first(reading: Reading) -> int:
    return min((int(part.min()) for part in (reading.steps, reading.seen[:, 0]) if len(part)), default=2**62)


def _last(reading: Reading) -> int:
    return max((int(part.max()) for part in (reading.steps, reading.seen[:, 1]) if len(part)), default=-1)


def _from(reading: Reading, first: int) -> Reading:
    """What a sending says of the steps from `first` on."""
    keep, seen = reading.steps >= first, reading.seen[reading.seen[:, 1] >= first]
    starts: Ints = np.maximum(seen[:, 0], first)
    return Reading(
        reading.host, reading.sample, reading.steps[keep], reading.hashes[keep],
        np.column_stack((starts, seen[:, 1], seen[:, 2])), reading.limit, reading.lowest,
    )  # fmt: skip
