"""The writing thread: takes what the training loop left in the queues, converts it, and appends it to the journal."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.batches import BatchBuilder, Names, Pace, Row, convert_values
from trainer_hooks.fingerprints import RowsRecord
from trainer_hooks.journal import Journal
from trainer_hooks.tally import Tally
from trainer_hooks.values import NotReadyError, UnusableError, as_float, as_step, fetch, is_device_array

POLL_SECONDS = 0.05
RECORD_SECONDS = 0.5  # at most this long between a call and its record in the spool
RECORD_ENTRIES = 1_000  # …or as soon as so many calls wait
HURRY_ENTRIES = 20_000
ROWS_SECONDS = 0.25  # hashing per turn, so that it can never keep the scalars waiting
MAX_HASHES = 50_000  # in one fingerprints record
MAX_ITEMS = 2**25

Entry = tuple[Any, dict[Any, Any], Any, Any, float]


@dataclass(frozen=True, slots=True)
class Items:
    """A `log_items` call."""

    step: Any
    task: str
    correct: Any


@dataclass(frozen=True, slots=True)
class Event:
    """An `event` call; `value` is plain JSON."""

    step: Any
    kind: str
    value: Any
    at: float


@dataclass(frozen=True, slots=True)
class Rows:
    """A `log_rows` call; `rows` is a private copy, or a device array."""

    step: Any
    rows: NDArray[np.uint32]
    host: int


def as_correct(value: Any) -> NDArray[np.bool_]:
    """Per-item results, bool (items,). Raises UnusableError or NotReadyError."""
    array = fetch(value) if is_device_array(value) else np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "bui" or not 0 < array.size <= MAX_ITEMS:
        raise UnusableError("refused", f"results must be booleans (items,), not {array.dtype}{list(array.shape)}")
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise UnusableError("refused", "results must be booleans, or 0 and 1")
    return array.astype(np.bool_)


def as_tokens(value: Any) -> float | int | None:
    """Cumulative tokens ≥ 0, or None for none. Raises UnusableError or NotReadyError."""
    if value is None:
        return None
    number = value if type(value) is int else as_float(value)
    if not 0 <= number < 2**63:
        raise UnusableError("refused", f"tokens are {number}")
    return int(number) if number == int(number) else number


class Writer:
    """Turns queue entries into records. `turn` is called by one thread only."""

    def __init__(self, journal: Journal, process: int, sample_rows: int, tally: Tally) -> None:
        self.entries: deque[Entry | Items | Event] = deque()
        self.rows: deque[Rows] = deque()
        self._journal = journal
        self._process = process
        self._sample = sample_rows
        self._tally = tally
        self._pace = Pace()
        self._names = Names()
        self._builder = BatchBuilder(self._pace)
        self._seq: Counter[str] = Counter()
        self._held: Entry | Items | Event | None = None
        self._held_rows: Rows | None = None
        self.last_step = 0

    def waiting(self) -> bool:
        """Whether something taken or to be taken is not in the journal yet."""
        return bool(self.entries or self.rows or self._held is not None or self._held_rows is not None)

    def turn(self, hurry: bool = False) -> None:
        """Moves all that is ready into the journal, and the journal to the disk."""
        self._pace.hurry = hurry or len(self.entries) > HURRY_ENTRIES
        self._take_entries()
        self._take_rows(time.monotonic() + ROWS_SECONDS)
        self._journal.flush()

    def give_up(self) -> None:
        """Counts what the device never finished as dropped."""
        waiting = len(self.entries) + len(self.rows) + (self._held is not None) + (self._held_rows is not None)
        if waiting:
            self._tally.add("not ready", f"{waiting} calls waited for values the device has not computed", waiting)
            self.entries.clear()
            self.rows.clear()
            self._held = self._held_rows = None

    def note_losses(self) -> None:
        """Says in the run's own record that something is missing from it."""
        counts = {reason: count for reason, count in self._tally.counts.items() if count and reason != "rejected"}
        if self._journal.dropped:
            counts["over memory or cap"] = self._journal.dropped
        if counts:
            value = {"trainer_hooks": {"dropped": counts}}
            self._record("events", {"step": self.last_step, "kind": "note", "value": value, "at": time.time()})

    def finish(self) -> None:
        """Adds the record that ends the segment."""
        self._record("finish", {"at": time.time()})

    # --- scalars, items, events: one order ---

    def _take_entries(self) -> None:
        try:
            while True:
                entry, self._held = self._held, None
                if entry is None:
                    if not self.entries:
                        break
                    entry = self.entries.popleft()
                try:
                    self._take(entry)
                except NotReadyError:
                    self._held = entry  # everything behind it waits too: one step late, never out of order
                    break
                except UnusableError as error:
                    self._tally.add(error.reason, f"a call was left out: {error}")
                except Exception as error:
                    self._tally.add("refused", f"a call was left out: {type(error).__name__}: {error}")
                self._pace.rest()
        except IndexError:  # the queue was full and the loop dropped the last entry meanwhile
            pass
        self._close_batch()

    def _take(self, entry: Entry | Items | Event) -> None:
        if isinstance(entry, tuple):
            step, metrics, tokens, weights_segment, at = entry
            number, fault, counted = as_step(step), None, None
            try:
                counted = as_tokens(tokens)
            except UnusableError as error:
                fault = error
            values = convert_values(metrics, self._names, self._tally.add)  # last to raise NotReadyError: counts once
            if fault is not None:
                self._tally.add(fault.reason, f"tokens at step {number} were left out: {fault}")
            row = Row(number, values, counted, at, weights_segment)
            self.last_step = number
            if row.values:
                if not self._builder.takes(row):
                    self._close_batch()
                self._builder.add(row)
        elif isinstance(entry, Items):
            self._close_batch()
            correct = as_correct(entry.correct)
            bits = base64.b64encode(np.packbits(correct, bitorder="little").tobytes()).decode()
            body = {"step": as_step(entry.step), "task": entry.task, "n": len(correct), "correct": bits}
            self._record("items", body)
        else:
            self._close_batch()
            body = {"step": as_step(entry.step), "kind": entry.kind, "value": entry.value, "at": entry.at}
            self._record("events", body)

    def _close_batch(self) -> None:
        if len(self._builder):
            self._journal.append("batches", self._builder.body(self._process, self._next("batches")))

    # --- row fingerprints ---

    def _take_rows(self, until: float) -> None:
        open_records: dict[int, RowsRecord] = {}
        while time.monotonic() < until:
            entry, self._held_rows = self._held_rows, None
            if entry is None:
                if not self.rows:
                    break
                try:
                    entry = self.rows.popleft()
                except IndexError:
                    break
            try:
                step = as_step(entry.step)
            except NotReadyError:
                self._held_rows = entry
                break
            except UnusableError as error:
                self._tally.add(error.reason, f"rows were left out: {error}")
                continue
            for start in range(0, len(entry.rows), MAX_HASHES):
                record = open_records.setdefault(entry.host, RowsRecord(entry.host, self._sample))
                record.add(step, entry.rows[start : start + MAX_HASHES])
                if len(record.hashes) >= MAX_HASHES:
                    self._record("fingerprints", open_records.pop(entry.host).body())
            self._pace.rest()
        for record in open_records.values():
            self._record("fingerprints", record.body())

    def _record(self, kind: str, fields: dict[str, Any]) -> None:
        body = {"process": self._process, "seq": self._next(kind), **fields}
        self._journal.append(kind, json.dumps(body, separators=(",", ":"), allow_nan=False).encode())

    def _next(self, kind: str) -> int:
        seq = self._seq[kind]
        self._seq[kind] += 1
        return seq


class WritingThread(threading.Thread):
    """Runs a writer until it is closed."""

    def __init__(self, writer: Writer, journal: Journal, tally: Tally) -> None:
        super().__init__(name="pacenote-writer", daemon=True)
        self.done = threading.Event()
        self._writer = writer
        self._journal = journal
        self._tally = tally
        self._closing = threading.Event()
        self._deadline = 0.0
        self._with_finish = False

    def close(self, deadline: float, with_finish: bool) -> None:
        """Asks for a last turn; arrays the device has not computed by `deadline` (monotonic) are dropped."""
        self._deadline, self._with_finish = deadline, with_finish
        self._closing.set()

    def run(self) -> None:
        turned_at = 0.0
        while not self._closing.wait(POLL_SECONDS):
            due = time.monotonic() - turned_at >= RECORD_SECONDS
            if (due or len(self._writer.entries) >= RECORD_ENTRIES) and self._guarded(self._writer.turn):
                turned_at = time.monotonic()
        self._guarded(self._writer.turn, True)
        while self._writer.waiting() and time.monotonic() < self._deadline:
            time.sleep(0.01)
            self._guarded(self._writer.turn, True)
        self._guarded(self._last_words)
        self._guarded(self._journal.close)
        self.done.set()

    def _last_words(self) -> None:
        self._writer.give_up()
        if self._with_finish:
            self._writer.note_losses()
            self._writer.finish()

    def _guarded(self, call: Any, *arguments: Any) -> bool:
        """Runs one piece of work; a fault in it is said once and must end neither the thread nor the run."""
        try:
            call(*arguments)
        except Exception as error:
            self._tally.add("faults", f"fault while writing, going on: {type(error).__name__}: {error}")
            return False
        return True
