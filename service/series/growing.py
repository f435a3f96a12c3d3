"""Live series of growing runs, kept between two readings: only what has come since is read.

A series at a step depends on what was accepted at that step, on the run's segments, and on the tokens that were given
at or before it. So new points behind all others of their series are appended; anything else (a late point, sealed rows,
tokens given late) is read again from the first step on that it may change, and another list of segments from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import BindParameter, Select, Table, and_, bindparam, func, literal, or_, select, union_all
from sqlalchemy.orm import Session

from service.compare.growing import Growing, T, same_bits
from service.database.models import Chunk, Journal, Metric, Run
from service.series.given import latest, tokens_differ
from service.series.journal import TIME, TOKENS, Lane, decode
from service.series.lineage import Lineage
from service.series.live import NO_LIMIT, GivenTokens, SegmentInfo, TokenAxis
from service.series.repository import Floats, Ints, SeriesRepository
from service.series.resolve import LanePoints, Lanes, resolve

Key = tuple[int, int]  # run, metric
BEYOND: int = NO_LIMIT
Parts = tuple[Ints, Floats, Floats]  # steps, tokens, values


_CHUNK: Table = Chunk.__table__  # pyright: ignore[reportAssignmentType]
_JOURNAL: Table = Journal.__table__  # pyright: ignore[reportAssignmentType]
_METRIC: Table = Metric.__table__  # pyright: ignore[reportAssignmentType]
_RUN: Table = Run.__table__  # pyright: ignore[reportAssignmentType]

# Statements are built once: building them costs as much as running them.
_SOME: BindParameter[Sequence[int]] = bindparam("runs", expanding=True)
_SERIES = union_all(
    select(_METRIC.c.run_id, _METRIC.c.id, _METRIC.c.name).where(_METRIC.c.run_id.in_(_SOME)),
    *(select(_RUN.c.id, literal(axis), literal("")).where(_RUN.c.id.in_(_SOME)) for axis in (TIME, TOKENS)),
).subquery()
_NUMBERS = select(
    *_SERIES.c,
    select(func.max(_CHUNK.c.number))
    .where(_CHUNK.c.run_id == _SERIES.c[0], _CHUNK.c.metric_id == _SERIES.c[1])
    .scalar_subquery(),
)
_NEWEST = (
    select(_JOURNAL.c.run_id, func.max(_JOURNAL.c.id)).where(_JOURNAL.c.run_id.in_(_SOME)).group_by(_JOURNAL.c.run_id)
)
_ROWS = (
    select(_JOURNAL.c.id, _JOURNAL.c.segment_id, _JOURNAL.c.payload)
    .where(_JOURNAL.c.run_id == bindparam("run"), _JOURNAL.c.id > bindparam("after"))
    .order_by(_JOURNAL.c.id)
)
_FIRST = select(func.min(_CHUNK.c.first_step)).where(
    _CHUNK.c.run_id == bindparam("run"),
    _CHUNK.c.metric_id == bindparam("metric"),
    _CHUNK.c.number > bindparam("number"),
)


@dataclass(frozen=True, slots=True)
class LiveSeries:
    """A series' live points, sorted by step: `steps` int64, `tokens` float64 on the project's axis, `values` float64,
    all (n,). Of two readings of one run the arrays stand at one address as far as they are the same."""

    steps: Ints
    tokens: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class _Places:
    """Steps and tokens of the points of one series, or of several that were logged together."""

    steps: Growing[np.int64]
    tokens: Growing[np.float64]


@dataclass(frozen=True, slots=True)
class _Column:
    places: _Places
    values: Growing[np.float64]

    @property
    def last(self) -> int:
        return int(self.places.steps.array[-1]) if len(self.values) else -1


@dataclass(slots=True)
class News:
    """Of one run, read for many at once: its last chunks and series, and the journal rows behind those known."""

    numbers: dict[Key, int] = field(default_factory=dict[Key, int])
    names: dict[str, list[Key]] = field(default_factory=dict[str, list[Key]])
    rows: list[tuple[int, int, bytes]] = field(default_factory=list[tuple[int, int, bytes]])


@dataclass(slots=True)
class _Kept:
    """What is known of a run. `numbers`: last chunk by (run, metric); `arrived`: last journal row by run."""

    version: str
    identity: object
    numbers: dict[Key, int]
    arrived: dict[int, int]
    lanes: Lanes
    axis: TokenAxis
    given: dict[int, _Places] = field(default_factory=dict[int, _Places])
    columns: dict[str, _Column] = field(default_factory=dict[str, _Column])


class GrowingSeries:
    """The live series of runs. One thread uses it; `forget` what is no longer wanted."""

    def __init__(self) -> None:
        self._runs: dict[int, _Kept] = {}

    def look(self, session: Session, run_ids: Sequence[int]) -> dict[int, News]:
        """What is new of those of these runs that are kept, by two queries, for `read` in the same session. Of a fork
        that is no use."""
        kept = {run_id: self._runs[run_id] for run_id in run_ids if run_id in self._runs}
        found = {run_id: News() for run_id in kept}
        if not kept:
            return found
        for row in session.connection().execute(_NUMBERS, {"runs": list(kept)}):
            run, metric, name, number = tuple[Any, ...](row)
            news, key = found[run], (run, metric)
            news.numbers[key] = number or 0
            if name:
                news.names.setdefault(name, []).append(key)
        marks = {
            f"{what}{i}": value
            for i, (run_id, held) in enumerate(kept.items())
            for what, value in (("run", run_id), ("after", held.arrived.get(run_id, 0)))
        }
        for run, row_id, segment, payload in session.connection().execute(_rows_of(len(kept)), marks):
            found[run].rows.append((row_id, segment, payload))
        return found

    def read(
        self,
        session: Session,
        line: Lineage,
        wanted: Callable[[Iterable[str]], Sequence[str]],
        news: News | None = None,
    ) -> dict[str, LiveSeries]:
        """The series of those metrics of a run (the last of its lineage) that `wanted` picks, as
        `SeriesRepository.read` gives their live points. A series without live points is left out. `news`: what `look`
        has found of the run."""
        run_id = line.run_ids[-1]
        kept = self._runs.pop(run_id, None)  # what fails half-way is not kept
        if kept is None or kept.version != line.version:
            kept = self._renewed(session, run_id, line, kept, wanted, news if len(line.run_ids) == 1 else None)
        self._runs[run_id] = kept
        return {
            name: LiveSeries(column.places.steps.array, column.places.tokens.array, column.values.array)
            for name, column in sorted(kept.columns.items())
            if len(column.values)
        }

    def forget(self, run_id: int) -> None:
        """Keep nothing of a run."""
        self._runs.pop(run_id, None)

    def nbytes(self, run_id: int) -> int:
        """Bytes kept of a run."""
        kept = self._runs.get(run_id)
        if kept is None:
            return 0
        places = {id(column.places): column.places for column in kept.columns.values()}
        sizes = [place.steps.nbytes + place.tokens.nbytes for place in (*places.values(), *kept.given.values())]
        return sum(sizes) + sum(column.values.nbytes for column in kept.columns.values())

    def _renewed(
        self,
        session: Session,
        run_id: int,
        line: Lineage,
        kept: _Kept | None,
        wanted: Callable[[Iterable[str]], Sequence[str]],
        news: News | None,
    ) -> _Kept:
        numbers, names = _numbers(session, line.run_ids) if news is None else (news.numbers, news.names)
        identity = (line.run_ids, line.segments, line.token_offset)
        columns = {name: names[name] for name in wanted(names)}
        if kept is None or kept.identity != identity:
            rows = session.connection().execute(_NEWEST, {"runs": line.run_ids}).all()
            arrived = {int(row[0]): int(row[1]) for row in rows}
            kept = _Kept(line.version, identity, numbers, arrived, Lanes(line.segments), TokenAxis(line.segments))
            _read_from(session, run_id, kept, dict.fromkeys(columns, 0), tokens=True)
            return kept
        sealed = {key[0] for key, number in numbers.items() if kept.numbers.get(key, 0) != number}
        after = {run: 0 if run in sealed else kept.arrived.get(run, 0) for run in line.run_ids}
        arrived, new = _arrived(session, after) if news is None or sealed else _decoded({run_id: news.rows})
        first, tokens = _first_changed(session, kept, numbers, columns, new, line.segments)
        kept.version, kept.numbers = line.version, numbers
        kept.arrived = {run: arrived.get(run, after[run]) for run in line.run_ids}
        for name in kept.columns.keys() - columns.keys():
            del kept.columns[name]
        if tokens:
            first = dict.fromkeys(columns, BEYOND) | first
        if first:
            _read_from(session, run_id, kept, first, tokens=tokens)
        _append(
            kept, line, {name: keys for name, keys in columns.items() if name not in first}, new, given_too=not tokens
        )
        return kept


def _numbers(session: Session, runs: Sequence[int]) -> tuple[dict[Key, int], dict[str, list[Key]]]:
    """The last chunk of every series of the runs, the axes included, and the series by name."""
    numbers: dict[Key, int] = {}
    names: dict[str, list[Key]] = {}
    for row in session.connection().execute(_NUMBERS, {"runs": runs}).all():
        run, metric, name, number = tuple[Any, ...](row)
        key = (int(run), int(metric))
        numbers[key] = int(number or 0)
        if name:
            names.setdefault(name, []).append(key)
    return numbers, names


def _arrived(
    session: Session, after: Mapping[int, int]
) -> tuple[dict[int, int], dict[int, dict[Lane, tuple[Ints, Floats]]]]:
    """The newest journal row of each run, and the points of those behind `after`. While none of a run's rows are
    sealed, later ones have higher ids; once some are, SQLite may give their ids again."""
    return _decoded(
        {
            run: [tuple(row) for row in session.connection().execute(_ROWS, {"run": run, "after": last})]
            for run, last in after.items()
        }
    )


def _decoded(
    rows: Mapping[int, Sequence[tuple[int, int, bytes]]],
) -> tuple[dict[int, int], dict[int, dict[Lane, tuple[Ints, Floats]]]]:
    newest = {run: mine[-1][0] for run, mine in rows.items() if mine}
    points = {run: decode((segment, payload) for _, segment, payload in mine) for run, mine in rows.items() if mine}
    return newest, points


@lru_cache(maxsize=64)
def _rows_of(count: int) -> Select[int, int, int, bytes]:
    """Journal rows of so many runs, each behind a row of its own."""
    mine = (
        and_(_JOURNAL.c.run_id == bindparam(f"run{i}"), _JOURNAL.c.id > bindparam(f"after{i}")) for i in range(count)
    )
    columns = (_JOURNAL.c.run_id, _JOURNAL.c.id, _JOURNAL.c.segment_id, _JOURNAL.c.payload)
    return select(*columns).where(or_(*mine)).order_by(_JOURNAL.c.id)


def _first_changed(
    session: Session,
    kept: _Kept,
    numbers: Mapping[Key, int],
    columns: Mapping[str, Sequence[Key]],
    new: Mapping[int, Mapping[Lane, tuple[Ints, Floats]]],
    segments: Sequence[SegmentInfo],
) -> tuple[dict[str, int], bool]:
    """The first step from which on points may differ, by metric; those are left out of which all that is new stands
    behind what is kept. And whether tokens may differ at steps that are kept."""
    changed: dict[str, int] = {}
    of_name = {key: name for name, keys in columns.items() for key in keys}
    sealed = [key for key, number in numbers.items() if kept.numbers.get(key, 0) != number]
    for run, metric in sealed:
        name = of_name.get((run, metric))
        if name is not None:
            key = {"run": run, "metric": metric, "number": kept.numbers.get((run, metric), 0)}
            first = int(session.connection().execute(_FIRST, key).scalar() or 0)
            changed[name] = min(first if name in kept.columns else 0, changed.get(name, first))
    tokens = any(metric == TOKENS for _, metric in sealed)
    plans = {segment.id for segment in segments if segment.ramp or segment.tokens_per_step is not None}
    highest = max((column.last for column in kept.columns.values()), default=-1)
    for run, lanes in new.items():
        for (segment, weights, metric), (steps, _) in lanes.items():
            if segment not in kept.lanes:
                continue
            if metric == TOKENS:
                given, first = kept.axis.given.get(segment), int(steps.min())
                tokens |= given is None or segment not in plans or first <= max(highest, int(given.steps[-1]))
            name = of_name.get((run, metric), "")
            column = kept.columns.get(name)
            steps = steps[steps <= kept.lanes.info(segment, weights).limit]
            if column is not None and len(steps) and int(steps.min()) <= column.last:
                changed[name] = min(int(steps.min()), changed.get(name, BEYOND))
    return changed, tokens


def _append(
    kept: _Kept,
    line: Lineage,
    columns: Mapping[str, Sequence[Key]],
    new: Mapping[int, Mapping[Lane, tuple[Ints, Floats]]],
    *,
    given_too: bool,
) -> None:
    """Put new points behind the columns, and, with `given_too`, the tokens that were given with them behind those."""
    given = {
        segment: points
        for lanes in new.values()
        for (segment, _, metric), points in lanes.items()
        if given_too and metric == TOKENS and segment in kept.lanes
    }
    for segment, points in given.items():
        before, now = kept.given[segment], latest(*points)
        steps, tokens = (
            before.steps.grown(len(before.steps), now.steps),
            before.tokens.grown(len(before.tokens), now.tokens),
        )
        kept.given[segment] = _Places(steps, tokens)
    if given:
        kept.axis = TokenAxis(
            line.segments,
            {s: GivenTokens(p.steps.array, p.tokens.array) for s, p in kept.given.items()},
            line.token_offset,
        )
    tails: dict[str, tuple[int, Parts]] = {}
    for name, keys in columns.items():
        parts = [
            LanePoints(kept.lanes.info(segment, weights), *points)
            for run, metric in keys
            for (segment, weights, m), points in new.get(run, {}).items()
            if m == metric and segment in kept.lanes
        ]
        if parts:
            found = resolve(parts)
            tokens = np.empty(len(found.steps))
            for index, part in enumerate(parts):
                mine = found.lanes == index
                if mine.any():
                    tokens[mine] = kept.axis.of(found.steps[mine], part.lane.segment_id, part.lane.weights_id)
            column = kept.columns.get(name)
            tails[name] = (0 if column is None else len(column.values), (found.steps, tokens, found.values))
    _join(kept, tails)


def _read_from(session: Session, run_id: int, kept: _Kept, first: dict[str, int], *, tokens: bool) -> None:
    """Read metrics, each from its first step that may differ, and put what is read behind what is before that step.
    With `tokens` those may differ too."""
    repository = SeriesRepository(session)
    axis = repository.axis(run_id)
    if tokens:
        differ = tokens_differ(kept.axis, axis)
        first = {name: min(step, differ) for name, step in first.items()}
        kept.axis = axis
        kept.given = {s: _Places(Growing(given.steps), Growing(given.tokens)) for s, given in axis.given.items()}
    tails: dict[str, tuple[int, Parts]] = {}
    for name, step in first.items():
        column = kept.columns.get(name)
        if column is None:  # nothing of it is kept yet
            step = 0
        elif step > column.last:
            step = column.last + 1
        read = repository.read(run_id, [name], from_step=max(step, 0)).get(name)
        if read is not None:
            keep = 0 if column is None else int(np.searchsorted(column.places.steps.array, step))
            tails[name] = (keep, (read.steps, read.tokens, read.values))
    _join(kept, tails)


def _join(kept: _Kept, tails: Mapping[str, tuple[int, Parts]]) -> None:
    """Put each tail behind the first points of its column. Series that were logged together share their places."""
    shared: list[tuple[_Places | None, int, Ints, Floats, _Places]] = []
    for name, (keep, (steps, tokens, values)) in tails.items():
        column = kept.columns.get(name)
        old = None if column is None else column.places
        if column is not None:  # what was read again and is the same stays where it is
            places = column.places
            again = min(
                same_bits(places.steps.array[keep:], steps),
                same_bits(places.tokens.array[keep:], tokens),
                same_bits(column.values.array[keep:], values),
            )
            keep, steps, tokens, values = keep + again, steps[again:], tokens[again:], values[again:]
        alike = (
            there for beside, kept_there, those, at, there in shared
            if beside is old and kept_there == keep and _equal(those, steps) and _equal(at, tokens)
        )  # fmt: skip
        places = next(alike, None)
        if places is None:
            places = (
                _Places(Growing(np.ascontiguousarray(steps)), Growing(np.ascontiguousarray(tokens)))
                if old is None
                else _Places(old.steps.grown(keep, steps), old.tokens.grown(keep, tokens))
            )
            shared.append((old, keep, steps, tokens, places))
        grown = Growing(np.ascontiguousarray(values)) if column is None else column.values.grown(keep, values)
        kept.columns[name] = _Column(places, grown)


def _equal(a: NDArray[T], b: NDArray[T]) -> bool:
    return len(a) == len(b) and same_bits(a, b) == len(a)
