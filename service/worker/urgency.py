"""Which runs have brought something that may have to be told at once, by a look at what has come for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from service.database.models import Event, Fingerprint, Journal, Segment
from service.series.journal import Payload

GRID = 50  # steps: blocks end where a multiple of it does, or of its half

_TABLES = (Journal, Fingerprint, Event, Segment)
_NEWEST = {table: select(func.max(table.id)) for table in _TABLES}
_ROWS = select(Journal.run_id, Journal.payload).where(Journal.id > bindparam("after"))
_HASHES = select(Fingerprint.run_id, Fingerprint.kind, Fingerprint.hashes).where(Fingerprint.id > bindparam("after"))
_OTHERS = {table: select(table.run_id).where(table.id > bindparam("after")).distinct() for table in (Event, Segment)}
_decoder = msgspec.msgpack.Decoder(Payload)


class Urgency:
    """What is urgent: values that are not finite, evaluations, the end of a block, rows that were read before, events
    and starts. It only says who is judged first; what is overlooked here is judged in its turn.

    `read_before` tells of a run and hashes of rows whether one of them is known."""

    def __init__(self, read_before: Callable[[int, NDArray[np.uint64]], bool]) -> None:
        self._read_before = read_before
        self._after: dict[type, int] = {}
        self._metrics: dict[int, int] = {}  # by run: how many metrics a step usually has
        self._urgent: set[int] = set()

    def look(self, session: Session) -> set[int]:
        """Runs with something urgent that was not judged yet."""
        for table in _TABLES:
            newest = session.scalar(_NEWEST[table]) or 0
            after = self._after.get(table)
            self._after[table] = newest
            if after is None or newest == after:
                continue
            after = min(after, newest)  # SQLite gives the ids of sealed rows again
            if table is Journal:
                points = session.connection().execute(_ROWS, {"after": after})
                self._urgent |= {run for run, payload in points if self._is_urgent(run, payload)}
            elif table is Fingerprint:
                sent = session.connection().execute(_HASHES, {"after": after})
                self._urgent |= {run for run, kind, hashes in sent if self._is_known(run, kind, hashes)}
            elif table is Event or table is Segment:
                self._urgent |= set(session.connection().execute(_OTHERS[table], {"after": after}).scalars())
        return self._urgent

    def judged(self, run_ids: Iterable[int]) -> None:
        """These were judged."""
        self._urgent.difference_update(run_ids)

    def _is_known(self, run_id: int, kind: str, data: bytes) -> bool:
        hashes = np.frombuffer(data, np.uint64)
        return len(hashes) > 0 and (kind == "heldout_hits" or (kind == "rows" and self._read_before(run_id, hashes)))

    def _is_urgent(self, run_id: int, data: bytes) -> bool:
        payload = _decoder.decode(data)
        usual = self._metrics.get(run_id, len(payload.metrics))
        self._metrics[run_id] = min(usual, len(payload.metrics))
        steps = np.frombuffer(payload.steps, np.int64)
        if len(payload.metrics) > usual or (len(steps) and (int(steps.min()) - 1) // GRID != int(steps.max()) // GRID):
            return True
        values = np.frombuffer(payload.values, np.float64)
        if payload.present is not None:
            values = values[np.unpackbits(np.frombuffer(payload.present, np.uint8), count=len(values)).view(np.bool_)]
        return not bool(np.isfinite(values).all())
