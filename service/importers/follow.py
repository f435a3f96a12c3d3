"""Turns pieces of a growing log into requests of the wire, so that a restart at any moment loses and doubles nothing.

Every piece is taken in one step: the requests it makes, and the place in the log after it, are written to the state
file together before anything is sent. After a restart the same requests are sent again, under the same keys, and the
service takes each once (docs/wire.md).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from service.importers.canonical import TOKENS, Target, naming
from service.importers.follow_source import Cursor, Fed
from service.importers.rows import LogError, Row

ROWS_AT_ONCE, VALUES_AT_ONCE = 2_000, 20_000
TRAIN = "train/"

Describe = Callable[[int], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `kind` is "segment" (a PUT) or "batches" (a POST)."""

    segment: str
    kind: str
    body: dict[str, Any]


@dataclass(slots=True)
class State:
    """What a restart needs: where the log was read up to, the open segment, and what may not have arrived yet.

    `bodies` maps segments that may have to be announced again to their descriptions.
    `last` maps metrics to their last step, `known` the log's names to (metric, shift, unit). `fresh`: the next points
    begin a new segment. `minus` maps names of losses to what they contain, `held` to the (step, value, time) that waits
    for it, `beside` what is contained to its last (step, value).
    """

    source: str
    cursor: Cursor | None = None
    segment: str = ""
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    seq: int = 0
    fresh: bool = True
    last: dict[str, int] = field(default_factory=dict[str, int])
    names: list[str] = field(default_factory=list[str])
    known: dict[str, tuple[str, int, str]] = field(default_factory=dict[str, tuple[str, int, str]])
    minus: dict[str, tuple[list[str], float]] = field(default_factory=dict[str, tuple[list[str], float]])
    held: dict[str, tuple[int, float, float | None]] = field(default_factory=dict[str, tuple[int, float, float | None]])
    beside: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    divisors: dict[str, float] = field(default_factory=dict[str, float])
    pending: list[Request] = field(default_factory=list[Request])
    points: int = 0
    segments: int = 0

    def sent(self) -> None:
        """Everything that was pending has arrived."""
        self.pending = []
        self.bodies = {self.segment: self.bodies[self.segment]} if self.segment else {}


class StateFile:
    """The state on disk, replaced as a whole. `state` is None where there is none yet.

    Raises:
        LogError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state: State | None = None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            content["pending"] = [Request(**request) for request in content["pending"]]
            content["known"] = {name: (known[0], known[1], known[2]) for name, known in content["known"].items()}
            self.state = State(**content)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LogError(f"{path} is no state of `pacenote follow` ({error}); --from-start begins anew") from error

    def save(self, state: State) -> None:
        """Write it, to the disk.

        Raises:
            LogError: that cannot be done.
        """
        new = self.path.with_suffix(".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump(asdict(state), file, separators=(",", ":"))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise LogError(f"{self.path}: the state cannot be written ({error.strerror})") from error


class Feed:
    """Makes requests of a log's rows. `describe` gives the body of a segment that starts after a number of updates."""

    def __init__(self, state: State, describe: Describe, chosen: Mapping[str, str], accumulation: int = 1) -> None:
        self.state = state
        self._describe = describe
        self._chosen = chosen
        self._accumulation = accumulation

    @property
    def unknown(self) -> list[str]:
        """Names of the log that mean nothing yet."""
        return [name for name in self.state.names if name not in self.state.known]

    def take(self, fed: Fed, format_name: str) -> None:
        """Take one piece: afterwards the state's `pending` holds what is to be sent, `cursor` the place after it.

        Raises:
            LogError: two names of the log mean one metric.
        """
        state = self.state
        if fed.fresh:
            state.fresh = True
            state.last.clear()
            self._forget()
        self._learn(format_name, dict.fromkeys(row.metric for row in fed.rows))
        for points in self._attempts(fed.rows, beside=fed.beside):
            if state.fresh:
                self._open(points)
            state.pending += self._batches(points)
        state.cursor = fed.cursor

    def _learn(self, format_name: str, names: Iterable[str]) -> None:
        """Find out what new names mean. What a name was taken for once, it stays."""
        state = self.state
        new = [name for name in names if name not in state.names]
        if not new:
            return
        state.names += new
        chosen = {name: metric for name, metric in self._chosen.items() if name in state.names}
        taken = {metric for metric, _, _ in state.known.values()}
        for name, target in naming(format_name, state.names, chosen, self._accumulation).known.items():
            if name not in state.known and target.metric not in taken and target.metric != TOKENS:
                state.known[name] = (target.metric, target.shift, target.unit)
            if name in state.known and state.known[name][0] == target.metric and target.minus:
                state.minus[name] = (list(target.minus), target.divisor)  # what it contains may be named later
            elif name in state.known and target.divisor != 1.0:
                state.divisors[name] = target.divisor

    def _attempts(self, rows: Sequence[Row], *, beside: bool) -> Iterable[list[Row]]:
        """The rows as known metrics, cut where the training went back; `fresh` is set before each new start."""
        state = self.state
        found: list[Row] = []
        terms = {term for minus, _ in state.minus.values() for term in minus}
        for row in rows:
            known = state.known.get(row.metric)
            step = row.step + known[1] if known else -1
            if known is not None and not beside and 0 <= step < state.last.get(known[0], 0):
                found += [left for name in list(state.held) for left in self._alone(name)]
                if found:
                    yield found
                    found = []
                state.fresh = True
                state.last.clear()
                self._forget()
            if row.metric in terms:
                state.beside[row.metric] = (row.step, row.value)
            if known is not None and step >= 0:
                metric, shift, unit = known
                state.last[metric] = max(step, state.last.get(metric, 0)) if beside else step
                if row.metric in state.minus:
                    found += self._uncovered(row)
                else:
                    target = Target(metric, shift, unit, divisor=state.divisors.get(row.metric, 1.0))
                    found.append(Row(step, metric, target.value(row.value), row.time))
            if row.metric in terms:
                found += [whole for name in list(state.held) if (whole := self._whole(name)) is not None]
        if found:
            yield found

    def _uncovered(self, row: Row) -> list[Row]:
        """A loss without what it contains: at once, or as soon as that is told.

        The one that waited before it contained nothing if nothing of it came since the start; else it is not known.
        """
        rows = self._alone(row.metric)
        self.state.held[row.metric] = (row.step, row.value, row.time)
        whole = self._whole(row.metric)
        return rows if whole is None else [*rows, whole]

    def _alone(self, name: str) -> list[Row]:
        state = self.state
        before = state.held.pop(name, None)
        if before is None or any(term in state.beside for term in state.minus[name][0]):
            return []
        metric, shift, _ = state.known[name]
        return [Row(before[0] + shift, metric, before[1], before[2])]

    def _whole(self, name: str) -> Row | None:
        """The loss that waits, if all that it contains is told at its step."""
        state = self.state
        step, value, time = state.held[name]
        terms, divisor = state.minus[name]
        found = [state.beside[term][1] for term in terms if term in state.beside and state.beside[term][0] == step]
        if len(found) < len(terms):
            return None
        del state.held[name]
        metric, shift, _ = state.known[name]
        return Row(step + shift, metric, value - sum(found) / divisor, time)

    def _forget(self) -> None:
        """The trainer starts anew: what waits for what it contains waits no more."""
        self.state.held.clear()
        self.state.beside.clear()

    def _open(self, rows: Sequence[Row]) -> None:
        """Begin a segment with these rows; it supersedes what lies beyond its start, by the trainer's rule."""
        state = self.state
        trained = [row.step for row in rows if row.metric.startswith(TRAIN)]
        start = max(min(trained) - 1, 0) if trained else min(row.step for row in rows)
        body = self._describe(start)
        # Two starts within one tick of the clock keep their order.
        before = state.bodies.get(state.segment, {}).get("started_at", 0.0)
        body["started_at"] = max(body["started_at"], before + 1e-3)
        state.segment, state.seq, state.fresh = str(uuid4()), 0, False
        state.bodies[state.segment] = body
        state.last = {row.metric: row.step for row in rows}
        state.segments += 1
        state.pending.append(Request(state.segment, "segment", body))

    def _batches(self, rows: Sequence[Row]) -> Iterable[Request]:
        """Rows as batches; values of one step that follow each other share a row."""
        state, now = self.state, time.time()
        steps: list[int] = []
        times: list[float] = []
        metrics: dict[str, dict[int, float]] = {}
        values = 0
        for row in rows:
            at = len(steps) - 1
            column = metrics.get(row.metric)
            if at < 0 or steps[at] != row.step or (column is not None and at in column):
                if len(steps) >= ROWS_AT_ONCE or values >= VALUES_AT_ONCE:
                    yield self._batch(steps, times, metrics)
                    steps, times, metrics, values = [], [], {}, 0
                at = len(steps)
                steps.append(row.step)
                times.append(now if row.time is None else row.time)
            metrics.setdefault(row.metric, {})[at] = row.value
            values += 1
            state.points += 1
        if steps:
            yield self._batch(steps, times, metrics)

    def _batch(self, steps: list[int], times: list[float], metrics: Mapping[str, Mapping[int, float]]) -> Request:
        columns = {
            metric: [_json(column[at]) if at in column else None for at in range(len(steps))]
            for metric, column in metrics.items()
        }
        body = {"process": 0, "seq": self.state.seq, "steps": steps, "times": times, "metrics": columns}
        self.state.seq += 1
        return Request(self.state.segment, "batches", body)


def _json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
