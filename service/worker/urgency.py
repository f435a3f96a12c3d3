"""Which runs have brought something that may have to be told at once, by a look at what has come for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from service.database.models import Event, Fingerprint, Journal, Segment
from service.fingerprints.hashes import unpack
from service.series.journal import Payload

GRID = 50  # steps: blocks end where a multiple of it does, or of its half

_TABLES = (Journal, Fingerprint, Event, Segment)
_NEWEST = {table: select(func.max(table.id)) for table in _TABLES}
_ROWS = select(Journal.run_id, Journal.payload).where(Journal.id > bindparam("after"))
_HASHES = select(Fingerprint.run_id, Fingerprint.kind, Fingerprint.hashes).where(Fingerprint.id > bindparam("after"))
_OTHERS = {table: select(table.run_id).where(table.id > bindparam("after")).distinct() for table in (Event, Segment)}
_decoder = msgspec.msgpack.Decoder(Payload)


class Urgency:
    """What is urgent, and how much: without bound values that are not finite and rows that were read before, which an
    alert rests on by themselves; else as many as there are steps in what brought the end of a block or an evaluation
    (who catches up has waited longest, and has most to tell), or events and starts. It only says who is judged first;
    what is overlooked here is judged in its turn.

    `read_before` tells of a run and hashes of rows whether one of them is known."""

    def __init__(self, read_before: Callable[[int, NDArray[np.uint64]], bool]) -> None:
        self._read_before = read_before
        self._after: dict[type, int] = {}
        self._metrics: dict[int, int] = {}  # by run: how many metrics a step usually has
        self._urgent: dict[int, float] = {}

    def look(self, session: Session) -> Mapping[int, float]:
        """Runs with something urgent that was not judged yet, and how urgent it is."""
        for table in _TABLES:
            newest = session.scalar(_NEWEST[table]) or 0
            after = self._after.get(table)
            self._after[table] = newest
            if after is None or newest == after:
                continue
            after = min(after, newest)  # SQLite gives the ids of sealed rows again
            if table is Journal:
                points = session.connection().execute(_ROWS, {"after": after})
                self._add((run, self._weight(run, payload)) for run, payload in points)
            elif table is Fingerprint:
                sent = session.connection().execute(_HASHES, {"after": after})
                self._add((run, math.inf) for run, kind, hashes in sent if self._is_known(run, kind, hashes))
            elif table is Event or table is Segment:
                sent = session.connection().execute(_OTHERS[table], {"after": after})
                self._add((run, 1.0) for run in sent.scalars())
        return self._urgent

    def judged(self, run_ids: Iterable[int]) -> None:
        """These were judged."""
        for run_id in run_ids:
            self._urgent.pop(run_id, None)

    def keep(self, due: Collection[int]) -> None:
        """Nothing else is to be judged: the others never are, or another process was first."""
        self.judged(self._urgent.keys() - due)

    def _add(self, found: Iterable[tuple[int, float]]) -> None:
        for run, weight in found:
            if weight:
                self._urgent[run] = self._urgent.get(run, 0.0) + weight

    def _is_known(self, run_id: int, kind: str, data: bytes) -> bool:
        if kind == "heldout_hits":
            return len(data) > 0
        return kind == "rows" and self._read_before(run_id, unpack(kind, data))

    def _weight(self, run_id: int, data: bytes) -> float:
        payload = _decoder.decode(data)
        usual = self._metrics.get(run_id, len(payload.metrics))
        self._metrics[run_id] = min(usual, len(payload.metrics))
        values = np.frombuffer(payload.values, np.float64)
        if payload.present is not None:
            values = values[np.unpackbits(np.frombuffer(payload.present, np.uint8), count=len(values)).view(np.bool_)]
        if not np.isfinite(values).all():
            return math.inf
        steps = np.frombuffer(payload.steps, np.int64)
        ends = len(payload.metrics) > usual or (len(steps) and (steps.min() - 1) // GRID != steps.max() // GRID)
        return float(len(steps)) if ends else 0.0
