"""Which sampled rows were read before, of a run that grows: a new hash is looked up among those before it, and what was
settled is not looked at again. Says the same whatever was kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from service.compare.growing import Growing, same_bits

from .inputs import DeclaredData, Ints, RowReadings

Bools = NDArray[np.bool_]
Hashes = NDArray[np.uint64]

WINDOW_READINGS = 65_536  # sampled readings within which a hash counts once: clusters of equal rows stay one event
FOLD = 4  # a piece of the index is joined to the one before it once that is not this many times as long


def _ints() -> Growing[np.int64]:
    return Growing(np.zeros(0, np.int64))


def _bools() -> Growing[np.bool_]:
    return Growing(np.zeros(0, np.bool_))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Readings `begin` up to `end` in order of their hashes; `index` (k,) are their places, equal hashes by place."""

    begin: int
    end: int
    hashes: Hashes
    index: Ints

    def cut(self, end: int) -> _Piece:
        keep = self.index < end
        return _Piece(self.begin, end, self.hashes[keep], self.index[keep])

    def joined(self, later: _Piece) -> _Piece:
        hashes = np.concatenate((self.hashes, later.hashes))
        order = np.argsort(hashes, kind="stable")  # sorts two runs in one pass
        return _Piece(self.begin, later.end, hashes[order], np.concatenate((self.index, later.index))[order])


@dataclass(slots=True)
class Repeats:
    """The readings (n in all) whose hash was read before, arrays (k,) in reading order: `where` they are, the `ordinal`
    of the reading among those of its hash (from 1), the places of the `previous` and of the `first` one.

    `legal` ones are planned; the others are repeats. `last` is the place of the last repeat of the same hash before
    (-1: none), `counted` whether there is none within the window and since the trainer started, `so_far` (k + 1,) how
    many repeats there are before.
    """

    where: Growing[np.int64] = field(default_factory=_ints)
    ordinal: Growing[np.int64] = field(default_factory=_ints)
    previous: Growing[np.int64] = field(default_factory=_ints)
    first: Growing[np.int64] = field(default_factory=_ints)
    legal: Growing[np.bool_] = field(default_factory=_bools)
    last: Growing[np.int64] = field(default_factory=_ints)
    counted: Growing[np.bool_] = field(default_factory=_bools)
    so_far: Growing[np.int64] = field(default_factory=lambda: Growing(np.zeros(1, np.int64)))
    read: Growing[np.int64] = field(default_factory=_ints)  # rows read up to each reported step
    hosts: dict[int, int] = field(default_factory=dict[int, int])  # by the place of their first reading
    _readings: RowReadings | None = None
    _data: DeclaredData | None = None
    _starts: tuple[int, ...] = ()
    _pieces: list[_Piece] = field(default_factory=list[_Piece])

    def advance(self, readings: RowReadings, data: DeclaredData | None, starts: Sequence[int] = ()) -> int:
        """Look at readings, in order of their steps, of a trainer that started behind the steps `starts`. Returns how
        many leading ones say what they said before."""
        before, self._readings = self._readings, readings
        known = 0 if before is None else _same_readings(before, readings)
        if before is not None and known < len(before.steps):
            self._forget(known)
        self._look_up(readings.hashes, known)
        self._note_hosts(readings.hosts, known)
        changed = self._add_read(before, readings)
        told = known
        if data != self._data:
            told = 0
        elif data is not None and changed is not None:
            told = min(known, int(np.searchsorted(readings.steps, changed)))
        others = set(starts) ^ set(self._starts)
        if others:
            told = min(told, int(np.searchsorted(readings.steps, min(others), side="right")))
        self._data, self._starts = data, tuple(sorted(set(starts)))
        self._judge(readings, data, told)
        return told

    def _forget(self, known: int) -> None:
        """Only the first `known` readings are as they were."""
        keep = int(np.searchsorted(self.where.array, known))
        for name in ("where", "ordinal", "previous", "first"):
            setattr(self, name, _cut(getattr(self, name), keep))
        self.hosts = {host: place for host, place in self.hosts.items() if place < known}
        kept = [piece for piece in self._pieces if piece.begin < known]
        if kept and kept[-1].end > known:
            kept[-1] = kept[-1].cut(known)
        self._pieces = kept

    def _look_up(self, hashes: Hashes, known: int) -> None:
        """Find the new readings among all before them."""
        n = len(hashes)
        if n == known:
            return
        order = np.argsort(hashes[known:], kind="stable")
        ordered = hashes[known:][order]
        head = np.ones(len(order), np.bool_)
        head[1:] = ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(head)
        group = np.cumsum(head) - 1
        unique = ordered[starts]
        count, first, last = (np.zeros(len(unique), np.int64), *(np.full(len(unique), -1) for _ in range(2)))
        for piece in self._pieces:
            left, right = (np.searchsorted(piece.hashes, unique, side) for side in ("left", "right"))
            met = np.flatnonzero(right > left)
            if len(met):
                new = met[count[met] == 0]
                first[new] = piece.index[left[new]]
                last[met] = piece.index[right[met] - 1]
                count[met] += right[met] - left[met]
        place = np.arange(len(order)) - starts[group]
        index: Ints = order + known
        before = np.where(place > 0, np.append(-1, index[:-1])[: len(index)], last[group])
        origin = np.where(first[group] >= 0, first[group], index[starts][group])
        again = np.flatnonzero(before >= 0)
        again = again[np.argsort(index[again])]
        self.where = _more(self.where, index[again])
        self.ordinal = _more(self.ordinal, (count[group] + place)[again])
        self.previous = _more(self.previous, before[again])
        self.first = _more(self.first, origin[again])
        self._pieces.append(_Piece(known, n, ordered, index))
        while len(self._pieces) > 1 and len(self._pieces[-2].index) < FOLD * len(self._pieces[-1].index):
            later = self._pieces.pop()
            self._pieces[-1] = self._pieces[-1].joined(later)

    def _note_hosts(self, hosts: Ints, known: int) -> None:
        new, places = np.unique(hosts[known:], return_index=True)
        for host, place in zip(new.tolist(), places.tolist(), strict=True):
            self.hosts.setdefault(host, known + place)

    def _add_read(self, before: RowReadings | None, readings: RowReadings) -> int | None:
        """Add up the rows that were read. Returns the first step at which the sum may be another one, None for none."""
        steps, rows = readings.seen_steps, readings.seen_rows
        same = 0
        if before is not None:
            same = min(same_bits(before.seen_steps, steps), same_bits(before.seen_rows, rows))
        at = [int(part[same]) for part in (steps, () if before is None else before.seen_steps) if len(part) > same]
        start = int(self.read.array[same - 1]) if same else 0
        self.read = self.read.grown(same, start + np.cumsum(rows[same:]))
        return min(at, default=None)

    def _judge(self, readings: RowReadings, data: DeclaredData | None, told: int) -> None:
        """Say of the readings from place `told` on whether they are planned, and which ones count."""
        where = self.where.array
        at = int(np.searchsorted(where, told))
        if at == len(where) == len(self.legal):
            return
        fresh = where[at:]
        legal = self._planned(readings, data, at)
        last = self._last_repeats(at, ~legal)
        # A start that reads the rows of the start before once more is a replay of its own.
        begins = np.searchsorted(readings.steps, self._starts, side="right")
        begin = np.append(0, begins)[np.searchsorted(begins, fresh, side="right")]
        counted = ~legal & ((last // WINDOW_READINGS < fresh // WINDOW_READINGS) | (last < begin))
        so_far = int(self.so_far.array[at]) + np.cumsum(~legal)
        self.legal, self.last = self.legal.grown(at, legal), self.last.grown(at, last)
        self.counted, self.so_far = self.counted.grown(at, counted), self.so_far.grown(at + 1, so_far)

    def _planned(self, readings: RowReadings, data: DeclaredData | None, at: int) -> Bools:
        """A row's j-th further reading is planned once j passes over the declared rows have been read, of no more than
        the declared passes; where parts of the mix are upsampled on purpose a pass may hold it `copies` times."""
        where, ordinal = self.where.array[at:], self.ordinal.array[at:]
        if data is None or data.rows <= 0 or len(readings.seen_steps) == 0:
            return np.zeros(len(where), np.bool_)
        seen = np.searchsorted(readings.seen_steps, readings.steps[where], side="right")
        read = np.concatenate(([0], self.read.array))
        passes = ordinal // max(data.copies, 1)
        # The step that completes the last pass may take a few rows from its beginning: loaders fill it up.
        within = (passes < np.ceil(data.epochs)) | (read[np.maximum(seen - 1, 0)] < data.epochs * data.rows)
        return (read[seen] >= passes * data.rows) & within

    def _last_repeats(self, at: int, repeat: Bools) -> Ints:
        """Of each reading from the `at`-th on the place of the last repeat of its hash before it."""
        where, previous, first = self.where.array, self.previous.array, self.first.array
        order = np.argsort(first[at:], kind="stable")
        size = len(order)
        places, hashes = np.arange(size), first[at:][order]
        head = np.ones(size, np.bool_)
        head[1:] = hashes[1:] != hashes[:-1]
        start: Ints = np.maximum.accumulate(np.where(head, places, 0))
        newest: Ints = np.maximum.accumulate(np.where(repeat[order], places, -1))
        newest = np.append(-1, newest[:-1])[:size]
        before: Ints = previous[at:][order][start]
        held = np.searchsorted(where[:at], before)
        found = np.full(size, -1, np.int64)
        if at:
            held = np.minimum(held, at - 1)
            met = where[held] == before
            found[met] = np.where(self.legal.array[held], self.last.array[held], before)[met]
        inside = newest >= start
        found[inside] = where[at:][order][newest[inside]]
        out = np.empty(size, np.int64)
        out[order] = found
        return out

    def met(self, hashes: Hashes) -> bool:
        """Whether one of these was read before, or stands here twice."""
        if len(np.unique(hashes)) < len(hashes):
            return True
        places = ((piece.hashes, np.searchsorted(piece.hashes, hashes)) for piece in self._pieces if len(piece.hashes))
        return any(bool((known[np.minimum(at, len(known) - 1)] == hashes).any()) for known, at in places)

    def repeats_in(self, begin: int, end: int) -> int:
        """How many of the readings `begin` up to `end` are repeats."""
        low, high = np.searchsorted(self.where.array, (begin, end))
        return int(self.so_far.array[high] - self.so_far.array[low])

    def again_in(self, begin: int, end: int) -> int:
        """How many of the readings `begin` up to `end` had been read before, planned or not."""
        low, high = np.searchsorted(self.where.array, (begin, end))
        return int(high - low)

    def of_repeats(self, begin: int, end: int) -> slice | Ints:
        """Those of these arrays that are repeats among the readings `begin` up to `end`."""
        low, high = (int(at) for at in np.searchsorted(self.where.array, (begin, end)))
        legal = self.legal.array[low:high]
        return low + np.flatnonzero(~legal) if legal.any() else slice(low, high)


def in_order(readings: RowReadings, known: int = 0) -> RowReadings:
    """The readings by step, as they are where they stand so already; the first `known` are known to."""
    steps = readings.steps[max(known - 1, 0) :]
    if len(steps) < 2 or bool((steps[1:] >= steps[:-1]).all()):
        return readings
    order = np.argsort(readings.steps, kind="stable")
    return replace(
        readings, steps=readings.steps[order], hosts=readings.hosts[order], hashes=readings.hashes[order]
    )  # fmt: skip


def _same_readings(old: RowReadings, new: RowReadings) -> int:
    return min(same_bits(old.steps, new.steps), same_bits(old.hosts, new.hosts), same_bits(old.hashes, new.hashes))


def _more(grown: Growing[np.int64], new: Ints) -> Growing[np.int64]:
    return grown.grown(len(grown), new)


def _cut(grown: Growing[np.int64], keep: int) -> Growing[np.int64]:
    return grown if keep == len(grown) else Growing(grown.array[:keep])
