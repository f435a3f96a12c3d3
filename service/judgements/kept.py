"""What a process that judges runs again and again keeps of them; each process its own. It changes no answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import BindParameter, bindparam, func, or_, select
from sqlalchemy.orm import Session

from service.compare.growing import same_bits
from service.database.models import Event, Fingerprint, ItemResult, JudgingChange, Run, Segment
from service.detect.cache import LevelCache
from service.detect.inputs import Deviation, Ints, RowReadings, RuleSetting, Series
from service.detect.inputs import Segment as Start
from service.detect.rows import RowWatch
from service.deviations.repository import DeviationRepository
from service.fingerprints.growing import GrowingRows
from service.fingerprints.repository import FingerprintRepository
from service.judgements.beside import Beside, read_beside, trainer_starts
from service.rules.effective import Effective, settings_of
from service.rules.reading import settings_in_force
from service.rules.repository import SettingRepository
from service.runs.repository import RunRepository
from service.series.growing import GrowingSeries, News
from service.series.lineage import Lineage, Stand, lineage, stands

MOST_BYTES = 512 * 1024 * 1024
IN_TURN = 4  # times as many judgements as runs are kept, within which a run that is kept must be judged to stay


# Statements are built once: building them costs as much as running them.
_SOME: BindParameter[Sequence[int]] = bindparam("runs", expanding=True)
_COUNTED = tuple(
    select(table.run_id, func.count(table.id), func.max(table.id)).where(table.run_id.in_(_SOME)).group_by(table.run_id)
    for table in (Event, ItemResult)
)
_BESIDE = select(  # numbers of which one changes when events, per-item results or hits on held-out text come
    *(
        number.where(*of).scalar_subquery()
        for key, of in (
            (Event.id, (Event.run_id.in_(_SOME),)),
            (ItemResult.id, (ItemResult.run_id.in_(_SOME),)),
            (Fingerprint.id, (Fingerprint.run_id.in_(_SOME), Fingerprint.kind == "heldout_hits")),
        )
        for number in (select(func.count(key)), select(func.max(key)))
    )
)
_CHANGE = select(func.max(JudgingChange.id)).where(
    JudgingChange.project_id == bindparam("project"),
    or_(JudgingChange.run_id.is_(None), JudgingChange.run_id == bindparam("run")),
)


@dataclass(frozen=True, slots=True)
class Said:
    """What people have said of how a run is judged: the newest `change` of it, the settings in force by rule, those of
    them that change answers, and declared deviations."""

    change: int
    settings: Mapping[str, Effective]
    judged: Mapping[str, RuleSetting]
    deviations: Sequence[Deviation]


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What was read for many runs at once, in one session; `counts` by run and kind."""

    session: Session
    stands: dict[int, Stand]
    news: dict[int, News]
    fingerprints: dict[tuple[int, str], tuple[int, int, int]]
    beside: tuple[dict[int, tuple[int, int]], ...]
    changes: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Starts:
    hosts: Ints
    names: set[int]
    launches: list[Segment]
    starts: list[Start]


@dataclass(slots=True)
class _Levels:
    reference: LevelCache
    own: LevelCache


class KeptRuns:
    """Series and row readings of the runs that were judged last, and what the rules worked out of them, up to a number
    of bytes: a new batch then costs what is new. One thread uses it; within one session it sees one snapshot, of which
    `look_ahead` reads for many runs at once what else is asked for each."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._series = GrowingSeries()
        self._rows = GrowingRows()
        self._windows = GrowingRows("windows")
        self._levels: OrderedDict[int, _Levels] = OrderedDict()
        self._segments: dict[int, tuple[object, list[Segment]]] = {}
        self._starts: dict[int, _Starts] = {}
        self._made: dict[int, dict[str, Series]] = {}  # what was handed out last
        self._said: dict[int, tuple[int, bool, Said]] = {}
        self._changes: dict[int, tuple[int, int]] = {}  # how many there were, of all runs, when `_said` was read
        self._beside: dict[int, tuple[object, Beside]] = {}
        self._weights: dict[int, int] = {}
        self._turn = 0
        self._turns: dict[int, int] = {}  # when each was judged last, counted in judgements
        self._bytes = 0
        self._line: tuple[Session, int, Lineage] | None = None
        self._ahead: _Ahead | None = None

    def look_ahead(self, session: Session, run_ids: Sequence[int]) -> None:
        """Read what is new of these runs, which are asked for next in this session; it may be left out."""
        connection = session.connection()
        counted = tuple(
            {run: (count, newest) for run, count, newest in connection.execute(query, {"runs": run_ids})}
            for query in _COUNTED
        )
        self._ahead = _Ahead(
            session, stands(session, run_ids), self._series.look(session, run_ids),
            FingerprintRepository(session).counts(run_ids), counted, SettingRepository(session).state(),
        )  # fmt: skip

    def newest_segment(self, session: Session, run_id: int) -> int | None:
        """Key of the run's newest segment, None where it was not looked for ahead."""
        stand = self._stand(session, run_id)
        return None if stand is None else stand.newest

    def series(
        self, session: Session, run_id: int, wanted: Callable[[Iterable[str]], Sequence[str]]
    ) -> dict[str, Series]:
        """The run's live series of the metrics that `wanted` picks; the same object again of one without news."""
        stand = self._stand(session, run_id)
        news = None if stand is None or self._ahead is None else self._ahead.news.get(run_id)
        read = self._series.read(session, self._lineage(session, run_id), wanted, news)
        before, now = self._made.get(run_id, {}), dict[str, Series]()
        for name, found in read.items():
            held = before.get(name)
            same = held is not None and held.values is found.values
            if held is None or not same or held.steps is not found.steps or held.tokens is not found.tokens:
                held = Series(found.steps, found.tokens, found.values)
            now[name] = held
        self._made[run_id] = now
        return dict(now)

    def rows(self, session: Session, run_id: int) -> RowReadings | None:
        """The run's row readings."""
        return self._rows.read(session, self._lineage(session, run_id), self._counted(session, run_id, "rows"))

    def windows(self, session: Session, run_id: int) -> RowReadings | None:
        """The run's window readings."""
        return self._windows.read(session, self._lineage(session, run_id), self._counted(session, run_id, "windows"))

    def segments(self, session: Session, run_id: int) -> list[Segment]:
        """The run's segments that have live steps, in order of launch."""
        repository, stand = RunRepository(session), self._stand(session, run_id)
        finished = repository.finished(run_id) if stand is None else stand.finished
        now = (self._lineage(session, run_id).segments, finished)
        held = self._segments.get(run_id)
        if held is None or held[0] != now:  # nothing else of a segment is ever changed
            held = (now, repository.live_segments(run_id))
            self._segments[run_id] = held
        return held[1]

    def starts(self, run_id: int, launches: list[Segment], rows: RowReadings | None) -> list[Start]:
        """`trainer_starts`: the same list again while nothing of it has changed."""
        hosts = np.zeros(0, np.int64) if rows is None else rows.hosts
        held = self._starts.get(run_id)
        names = set[int]()
        known = 0
        if held is not None and same_bits(held.hosts, hosts) == len(held.hosts):
            names, known = held.names, len(held.hosts)
        names = names | set(np.unique(hosts[known:]).tolist())
        if held is not None and held.launches is launches and len(held.names) == len(names):
            starts = held.starts
        else:
            starts = trainer_starts(launches, rows, len(names))
        self._starts[run_id] = _Starts(hosts, names, launches, starts)
        return starts

    def said(self, session: Session, run: Run) -> Said:
        """What people have said of how the run is judged."""
        held, ahead = self._said.get(run.id), self._ahead
        changes = ahead.changes if ahead is not None and ahead.session is session else None
        if held is not None and changes is not None and self._changes.get(run.id) == changes:
            newest = held[0]
        else:
            newest = session.connection().execute(_CHANGE, {"project": run.project_id, "run": run.id}).scalar() or 0
        if changes is not None:
            self._changes[run.id] = changes
        if held is None or held[0] != newest:
            settings = settings_in_force(session, run)
            deviations = DeviationRepository(session)
            ends = any(row.end_at is not None for row in deviations.of_run(run.id))  # such an end is found by its time
            held = (newest, ends, Said(newest, settings, settings_of(settings), deviations.judged(run)))
            self._said[run.id] = held
        elif held[1]:
            return replace(held[2], deviations=DeviationRepository(session).judged(run))
        return held[2]

    def beside(self, session: Session, run_id: int) -> Beside:
        """What is known of the run beside its series and rows."""
        line, ahead = self._lineage(session, run_id), self._ahead
        if ahead is not None and self._stand(session, run_id) is not None:
            hits = ahead.fingerprints.get((run_id, "heldout_hits"), (0, 0, None))
            counts = (*(counted.get(run_id, (0, None)) for counted in ahead.beside), (hits[0], hits[2]))
            numbers = tuple(number for pair in counts for number in pair)
        else:
            numbers = tuple(session.connection().execute(_BESIDE, {"runs": line.run_ids}).one())
        held = self._beside.get(run_id)
        if held is None or held[0] != (line.segments, numbers):
            held = ((line.segments, numbers), read_beside(session, run_id))
            self._beside[run_id] = held
        return held[1]

    def knows(self, run_id: int) -> bool:
        """Whether something is kept of a run."""
        return run_id in self._levels

    def read_before(self, run_id: int, hashes: NDArray[np.uint64]) -> bool:
        """Whether one of these rows was read before by a run that is kept."""
        held = self._levels.get(run_id)
        return held is not None and held.own.kept(RowWatch).met(hashes)

    def levels(self, run_id: int, reference: LevelCache) -> LevelCache:
        """What the rules keep of a run beside its reference, of which they keep `reference`."""
        held = self._levels.pop(run_id, None)
        new = held is None
        if held is None or held.reference is not reference:
            held = _Levels(reference, reference.of_a_run())
        self._levels[run_id] = held
        self._turn += 1
        self._turns[run_id] = self._turn
        # The rules keep about as much as they are given.
        rows = self._rows.nbytes(run_id) + self._windows.nbytes(run_id)
        weighs = 2 * (self._series.nbytes(run_id) + rows)
        self._bytes += weighs - self._weights.get(run_id, 0)
        self._weights[run_id] = weighs
        while len(self._levels) > 1 and self._bytes > self._most_bytes:
            oldest = next(iter(self._levels))
            # Where more runs are judged in turn than find room, those that found it keep it: each would push out the
            # one that is judged next, and all would be read from their start.
            in_turn = self._turn - self._turns[oldest] < IN_TURN * len(self._levels)
            self._forget(run_id if new and in_turn else oldest)
            if new and in_turn:
                break
        return held.own

    def _stand(self, session: Session, run_id: int) -> Stand | None:
        ahead = self._ahead
        return ahead.stands.get(run_id) if ahead is not None and ahead.session is session else None

    def _counted(self, session: Session, run_id: int, kind: str) -> tuple[int, int, int] | None:
        if self._ahead is None or self._stand(session, run_id) is None:
            return None
        return self._ahead.fingerprints.get((run_id, kind), (0, 0, 0))

    def _lineage(self, session: Session, run_id: int) -> Lineage:
        stand = self._stand(session, run_id)
        if stand is not None:
            return stand.line
        if self._line is None or self._line[0] is not session or self._line[1] != run_id:
            self._line = (session, run_id, lineage(session, run_id))
        return self._line[2]

    def _forget(self, run_id: int) -> None:
        del self._levels[run_id], self._turns[run_id]
        self._bytes -= self._weights.pop(run_id, 0)
        self._series.forget(run_id)
        self._rows.forget(run_id)
        self._windows.forget(run_id)
        self._segments.pop(run_id, None)
        self._starts.pop(run_id, None)
        self._made.pop(run_id, None)
        self._said.pop(run_id, None)
        self._changes.pop(run_id, None)
        self._beside.pop(run_id, None)
