"""What a process that judges runs again and again keeps of them; each process its own. It changes no answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.database.models import Segment
from service.detect.cache import LevelCache
from service.detect.inputs import RowReadings, Series
from service.fingerprints.growing import GrowingRows
from service.judgements.beside import Beside, read_beside
from service.runs.repository import RunRepository
from service.series.growing import GrowingSeries
from service.series.lineage import Lineage, lineage

MOST_BYTES = 512 * 1024 * 1024


@dataclass(slots=True)
class _Levels:
    reference: LevelCache
    own: LevelCache


class KeptRuns:
    """Series and row readings of the runs that were judged last, and what the rules worked out of them, up to a number
    of bytes: a new batch then costs what is new. One thread uses it; within one session it sees one snapshot."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._series = GrowingSeries()
        self._rows = GrowingRows()
        self._levels: OrderedDict[int, _Levels] = OrderedDict()
        self._segments: dict[int, tuple[object, list[Segment]]] = {}
        self._beside: dict[int, tuple[object, Beside]] = {}
        self._weights: dict[int, int] = {}
        self._bytes = 0
        self._line: tuple[Session, int, Lineage] | None = None

    def series(
        self, session: Session, run_id: int, wanted: Callable[[Iterable[str]], Sequence[str]]
    ) -> dict[str, Series]:
        """The run's live series of the metrics that `wanted` picks."""
        read = self._series.read(session, self._lineage(session, run_id), wanted)
        return {name: Series(found.steps, found.tokens, found.values) for name, found in read.items()}

    def rows(self, session: Session, run_id: int) -> RowReadings | None:
        """The run's row readings."""
        return self._rows.read(session, self._lineage(session, run_id))

    def segments(self, session: Session, run_id: int) -> list[Segment]:
        """The run's segments that have live steps, in order of launch."""
        repository = RunRepository(session)
        now = (self._lineage(session, run_id).segments, repository.finished(run_id))
        held = self._segments.get(run_id)
        if held is None or held[0] != now:  # nothing else of a segment is ever changed
            held = (now, repository.live_segments(run_id))
            self._segments[run_id] = held
        return held[1]

    def beside(self, session: Session, run_id: int) -> Beside:
        """What is known of the run beside its series and rows."""
        line = self._lineage(session, run_id)
        numbers = RunRepository(session).beside_series(line.run_ids)
        held = self._beside.get(run_id)
        if held is None or held[0] != (line.segments, numbers):
            held = ((line.segments, numbers), read_beside(session, run_id))
            self._beside[run_id] = held
        return held[1]

    def levels(self, run_id: int, reference: LevelCache) -> LevelCache:
        """What the rules keep of a run beside its reference, of which they keep `reference`."""
        held = self._levels.pop(run_id, None)
        if held is None or held.reference is not reference:
            held = _Levels(reference, reference.of_a_run())
        self._levels[run_id] = held
        # The rules keep about as much as they are given.
        weighs = 2 * (self._series.nbytes(run_id) + self._rows.nbytes(run_id))
        self._bytes += weighs - self._weights.get(run_id, 0)
        self._weights[run_id] = weighs
        while len(self._levels) > 1 and self._bytes > self._most_bytes:
            self._forget(next(iter(self._levels)))
        return held.own

    def _lineage(self, session: Session, run_id: int) -> Lineage:
        if self._line is None or self._line[0] is not session or self._line[1] != run_id:
            self._line = (session, run_id, lineage(session, run_id))
        return self._line[2]

    def _forget(self, run_id: int) -> None:
        del self._levels[run_id]
        self._bytes -= self._weights.pop(run_id, 0)
        self._series.forget(run_id)
        self._rows.forget(run_id)
        self._segments.pop(run_id, None)
        self._beside.pop(run_id, None)
