"""Reading series back: exactly, in overview, or their latest value. Every method sees one snapshot: the session's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from service.database.models import Chunk, Journal, Metric
from service.series.chunks import unpack
from service.series.journal import AXES, TOKENS, Lane, decode, join_points
from service.series.lineage import Lineage, lineage
from service.series.live import NO_LIMIT, GivenTokens, TokenAxis
from service.series.overview import Buckets, ChunkKey, Piece, Plan
from service.series.resolve import LaneInfo, LanePoints, Lanes, Resolved, resolve

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FEW_STRETCHES = 256


@dataclass(frozen=True, slots=True)
class Points:
    """A series, sorted by step: `steps` (n,), `tokens` (n,) on the project's axis (NaN where unknown), `values` (n,).

    `segments` (n,) are the ids of the segments that wrote them; `live` (n,) is False for superseded points.
    """

    steps: Ints
    tokens: Floats
    values: Floats
    segments: Ints
    live: Bools

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class Overview:
    """A series in buckets (m,), in step order. `steps` and `tokens` are those of each bucket's last point.

    `minimum`, `maximum` and `mean` are over the finite values (NaN where a bucket has none); `first` and `last` are
    values as they came; `count` counts all points, `non_finite` those that are NaN or infinite. `width` is in steps.
    """

    steps: Ints
    tokens: Floats
    minimum: Floats
    maximum: Floats
    mean: Floats
    first: Floats
    last: Floats
    count: Ints
    non_finite: Ints
    width: int

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(slots=True)
class _Run:
    """What several questions about one run share."""

    lineage: Lineage
    lanes: Lanes
    journal: dict[int, list[tuple[int, bytes]]] | None = None  # run -> (segment, payload)
    axis: TokenAxis | None = None


class SeriesRepository:
    """The series of runs. A forked run's begin with its parent's."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._runs: dict[int, _Run] = {}

    def names(self, run_id: int) -> list[str]:
        """Names of the metrics that have points, sorted."""
        runs = self._run(run_id).lineage.run_ids
        return sorted(set(self._session.scalars(select(Metric.name).where(Metric.run_id.in_(runs)))))

    def version(self, run_id: int) -> str:
        """Changes whenever an answer about the run's series may change, and only then."""
        return self._run(run_id).lineage.version

    def segment_uuids(self, run_id: int) -> dict[int, str]:
        """Public ids of the segments that `Points.segments` names."""
        return {segment.id: str(segment.uuid) for segment in self._run(run_id).lineage.segments}

    def read(
        self,
        run_id: int,
        names: Sequence[str],
        *,
        from_step: int | None = None,
        to_step: int | None = None,
        superseded: bool = False,
    ) -> dict[str, Points]:
        """The exact points between two steps (inclusive) of the metrics that exist.

        Live points only, one per step, unless `superseded`: then every point that was ever accepted.
        """
        first, last = from_step or 0, NO_LIMIT if to_step is None else to_step
        run = self._run(run_id)
        found: dict[str, Points] = {}
        for name, metrics in self._metrics(run, names).items():
            resolved, lanes = self._resolve(run, metrics, first, last, superseded)
            if first > 0 or to_step is not None:
                resolved = _between(resolved, first, last)
            tokens = self._tokens(run_id, resolved.steps, resolved.lanes, lanes)
            segments = _segments(resolved, lanes)
            found[name] = Points(resolved.steps, tokens, resolved.values, segments, resolved.live)
        return found

    def chunk_starts(self, run_id: int, names: Sequence[str]) -> list[tuple[int, str]]:
        """(first step, metric) of every sealed chunk of the metrics, by step: where a long read can be cut."""
        run = self._run(run_id)
        found: list[tuple[int, str]] = []
        for name, metrics in self._metrics(run, names).items():
            for run_key, metric_id in metrics:
                own = select(Chunk.first_step).where(Chunk.run_id == run_key, Chunk.metric_id == metric_id)
                found += [(step, name) for step in self._session.scalars(own)]
        return sorted(found)

    def overview(
        self, run_id: int, name: str, *, points: int, from_step: int | None = None, to_step: int | None = None
    ) -> Overview | None:
        """At most `points` buckets between two steps (inclusive); None if there is no such metric."""
        return self.overviews(run_id, [name], points=points, from_step=from_step, to_step=to_step).get(name)

    def overviews(
        self,
        run_id: int,
        names: Sequence[str],
        *,
        points: int,
        from_step: int | None = None,
        to_step: int | None = None,
    ) -> dict[str, Overview]:
        """The overviews of those of the metrics that exist."""
        first, last = from_step or 0, NO_LIMIT if to_step is None else to_step
        run = self._run(run_id)
        metrics = self._metrics(run, names)
        pieces = self._pieces(run, [key for keys in metrics.values() for key in keys])
        plans = {name: Plan([p for key in keys for p in pieces[key]], first, last) for name, keys in metrics.items()}
        settled = self._decode(key for plan in plans.values() for key in plan.unsettled())
        for plan in plans.values():
            plan.settle(settled)
        decoded = self._decode(key for plan in plans.values() for key in plan.too_coarse(points))
        return {
            name: self._overview(run_id, plan.cells(points, decoded), plan.width(points))
            for name, plan in plans.items()
        }

    def latest(self, run_id: int, names: Sequence[str]) -> dict[str, tuple[int, float]]:
        """The live point with the highest step of each metric that has one: (step, value)."""
        run = self._run(run_id)
        metrics = self._metrics(run, names)
        pieces = self._pieces(run, [key for keys in metrics.values() for key in keys])
        found: dict[str, tuple[int, float]] = {}
        for name, keys in metrics.items():
            parts = [piece for key in keys for piece in pieces[key]]
            # The highest live step is at least the lowest step that the highest-reaching piece may still hold.
            while parts:
                highest = max(parts, key=lambda piece: min(piece.last_step, piece.lane.limit))
                plan = Plan(parts, highest.first_step, NO_LIMIT)
                plan.settle(self._decode(plan.unsettled()))
                buckets = plan.cells(1, self._decode(plan.too_coarse(1)))
                if buckets is not None:
                    found[name] = (int(buckets.cells.last_steps[-1]), float(buckets.cells.last[-1]))
                    break
                parts.remove(highest)
        return found

    def _overview(self, run_id: int, buckets: Buckets | None, width: int) -> Overview:
        if buckets is None:
            ints, floats = np.empty(0, np.int64), np.empty(0)
            return Overview(ints, floats, floats, floats, floats, floats, floats, ints, ints, width)
        cells = buckets.cells
        finite = cells.counts - cells.non_finite
        some = finite > 0
        low, high = np.where(some, cells.minimum, np.nan), np.where(some, cells.maximum, np.nan)
        with np.errstate(over="ignore"):
            mean = np.clip(np.where(some, cells.total, np.nan) / np.maximum(finite, 1), low, high)
        tokens = self._tokens(run_id, cells.last_steps, buckets.lanes, buckets.written_by)
        return Overview(
            cells.last_steps, tokens, low, high, mean, cells.first, cells.last, cells.counts, cells.non_finite, width
        )

    def _run(self, run_id: int) -> _Run:
        if run_id not in self._runs:
            line = lineage(self._session, run_id)
            self._runs[run_id] = _Run(line, Lanes(line.segments))
        return self._runs[run_id]

    def _metrics(self, run: _Run, names: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
        """Name -> (run, metric) in the run and its ancestors, in the order of `names`."""
        runs = run.lineage.run_ids
        query = select(Metric.name, Metric.run_id, Metric.id).where(Metric.run_id.in_(runs), Metric.name.in_(names))
        found: dict[str, list[tuple[int, int]]] = {
            name: [(r, AXES[name]) for r in runs] for name in names if name in AXES
        }
        for name, run_id, metric_id in self._session.execute(query):
            found.setdefault(name, []).append((run_id, metric_id))
        return {name: found[name] for name in dict.fromkeys(names) if name in found}

    def _journal(self, run: _Run, keys: Iterable[tuple[int, int]]) -> dict[int, dict[Lane, tuple[Ints, Floats]]]:
        """Run -> the journal's points of these (run, metric)."""
        if run.journal is None:
            run.journal = {}
            rows = self._session.execute(
                select(Journal.run_id, Journal.segment_id, Journal.payload)
                .where(Journal.run_id.in_(run.lineage.run_ids))
                .order_by(Journal.run_id, Journal.id)
            )
            for run_id, segment_id, payload in rows:
                run.journal.setdefault(run_id, []).append((segment_id, payload))
        wanted: dict[int, set[int]] = {}
        for run_id, metric_id in keys:
            wanted.setdefault(run_id, set()).add(metric_id)
        return {run_id: decode(run.journal.get(run_id, ()), metrics) for run_id, metrics in wanted.items()}

    def _resolve(
        self, run: _Run, metrics: Sequence[tuple[int, int]], first: int, last: int, superseded: bool
    ) -> tuple[Resolved, list[LaneInfo]]:
        """Chunks and journal of one series, put in order; the lanes that `Resolved.lanes` counts in."""
        stored: dict[tuple[int, int | None], list[tuple[int, bytes, bytes]]] = {}
        for run_id, metric_id in metrics:
            rows = self._session.execute(
                select(Chunk.segment_id, Chunk.weights_segment_id, Chunk.points, Chunk.steps, Chunk.values)
                .where(Chunk.run_id == run_id, Chunk.metric_id == metric_id)
                .where(Chunk.last_step >= first, Chunk.first_step <= last)
                .order_by(Chunk.number)
            )
            for segment_id, weights_id, points, steps, values in rows:
                stored.setdefault((segment_id, weights_id), []).append((points, steps, values))
        points_of = {lane: [unpack(packed)] for lane, packed in stored.items()}
        for lanes in self._journal(run, metrics).values():
            for (segment_id, weights_id, _), arrived in lanes.items():
                points_of.setdefault((segment_id, weights_id), []).append(arrived)
        parts = [
            LanePoints(run.lanes.info(*lane), *join_points(arrived))
            for lane, arrived in points_of.items()
            if lane[0] in run.lanes
        ]
        return resolve(parts, superseded=superseded), [part.lane for part in parts]

    def _pieces(self, run: _Run, keys: Sequence[tuple[int, int]]) -> dict[tuple[int, int], list[Piece]]:
        """(run, metric) -> its pieces, in order of arrival."""
        pieces: dict[tuple[int, int], list[Piece]] = {key: [] for key in keys}
        for run_id in dict.fromkeys(run_id for run_id, _ in keys):
            rows = self._session.execute(
                select(
                    Chunk.metric_id,
                    Chunk.number,
                    Chunk.segment_id,
                    Chunk.weights_segment_id,
                    Chunk.first_step,
                    Chunk.last_step,
                    Chunk.points,
                    Chunk.repeats,
                    Chunk.cell,
                    Chunk.summary,
                )
                .where(Chunk.run_id == run_id, Chunk.metric_id.in_([metric for r, metric in keys if r == run_id]))
                .order_by(Chunk.metric_id, Chunk.number)
            )
            infos: dict[tuple[int, int | None], LaneInfo] = {}
            for metric, number, segment, weights, first, last, count, repeats, cell, summary in rows:
                lane = infos.get((segment, weights))
                if lane is None:
                    if segment not in run.lanes:
                        continue
                    lane = infos[segment, weights] = run.lanes.info(segment, weights)
                key = (run_id, metric, number)
                pieces[run_id, metric].append(Piece(lane, first, last, count, repeats, cell, summary, key))
        for run_id, lanes in self._journal(run, keys).items():
            for (segment_id, weights_id, metric), (steps, values) in lanes.items():
                if segment_id in run.lanes:
                    lane = run.lanes.info(segment_id, weights_id)
                    span = (int(steps.min()), int(steps.max()))
                    pieces[run_id, metric].append(Piece(lane, *span, len(steps), points=(steps, values)))
        return pieces

    def _decode(self, keys: Iterable[ChunkKey]) -> dict[ChunkKey, tuple[Ints, Floats]]:
        numbers: dict[int, list[tuple[int, int]]] = {}
        for run_id, metric_id, number in keys:
            numbers.setdefault(run_id, []).append((metric_id, number))
        decoded: dict[ChunkKey, tuple[Ints, Floats]] = {}
        for run_id, chunks in numbers.items():
            for start in range(0, len(chunks), 1000):
                rows = self._session.execute(
                    select(Chunk.metric_id, Chunk.number, Chunk.points, Chunk.steps, Chunk.values).where(
                        Chunk.run_id == run_id,
                        tuple_(Chunk.metric_id, Chunk.number).in_(chunks[start : start + 1000]),
                    )
                )
                for metric_id, number, points, steps, values in rows:
                    decoded[run_id, metric_id, number] = unpack([(points, steps, values)])
        return decoded

    def _tokens(self, run_id: int, steps: Ints, lanes: Ints, written_by: Sequence[LaneInfo]) -> Floats:
        axis = self.axis(run_id)
        if len(written_by) == 1:
            return axis.of(steps, written_by[0].segment_id, written_by[0].weights_id)
        tokens = np.empty(len(steps))
        edges = np.flatnonzero(lanes[1:] != lanes[:-1]) + 1
        if len(edges) < FEW_STRETCHES:  # restarts follow one another
            for start, end in pairwise([0, *edges.tolist(), len(steps)]):
                if end > start:
                    lane = written_by[int(lanes[start])]
                    tokens[start:end] = axis.of(steps[start:end], lane.segment_id, lane.weights_id)
            return tokens
        by_lane: dict[tuple[int, int | None], list[int]] = {}
        for index, lane in enumerate(written_by):
            by_lane.setdefault((lane.segment_id, lane.weights_id), []).append(index)
        for (segment_id, weights_id), indices in by_lane.items():
            mine = np.isin(lanes, indices)
            tokens[mine] = axis.of(steps[mine], segment_id, weights_id)
        return tokens

    def axis(self, run_id: int) -> TokenAxis:
        """Tokens at steps of the run, by all that was given and planned."""
        run = self._run(run_id)
        if run.axis is None:
            metrics = [(r, TOKENS) for r in run.lineage.run_ids]
            resolved, lanes = self._resolve(run, metrics, 0, NO_LIMIT, superseded=True)
            given: dict[int, GivenTokens] = {}
            for segment_id in {lane.segment_id for lane in lanes}:
                mine = np.isin(resolved.lanes, [i for i, lane in enumerate(lanes) if lane.segment_id == segment_id])
                steps, tokens = resolved.steps[mine], resolved.values[mine]
                latest = np.append(steps[1:] != steps[:-1], True)
                given[segment_id] = GivenTokens(steps[latest], tokens[latest])
            run.axis = TokenAxis(run.lineage.segments, given, run.lineage.token_offset)
        return run.axis


def _segments(found: Resolved, lanes: Sequence[LaneInfo]) -> Ints:
    if len(lanes) == 1:
        return np.broadcast_to(np.int64(lanes[0].segment_id), found.steps.shape)
    return np.array([lane.segment_id for lane in lanes] or [0], np.int64)[found.lanes]


def _between(found: Resolved, first: int, last: int) -> Resolved:
    start, stop = np.searchsorted(found.steps, first, "left"), np.searchsorted(found.steps, last, "right")
    cut = slice(int(start), int(stop))
    return Resolved(found.steps[cut], found.values[cut], found.lanes[cut], found.live[cut])
