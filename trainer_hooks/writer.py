"""The writing thread: takes what the training loop left in the queues, converts it, and appends it to the journal."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter, deque
from typing import Any

from trainer_hooks.batches import BatchBuilder, Names, Pace, Row, Translate, convert_values
from trainer_hooks.entries import Entry, Items, Packed, Rows, as_tokens, packed
from trainer_hooks.fingerprints import Fingerprints
from trainer_hooks.heldout_windows import HeldoutWindows
from trainer_hooks.journal import Journal
from trainer_hooks.row_buffers import RowBuffers
from trainer_hooks.tally import Tally, text_of
from trainer_hooks.values import NotReadyError, UnusableError, as_step

POLL_SECONDS = 0.05  # while calls come fast, so that the queue never fills
IDLE_SECONDS = 0.5  # else: looking costs more than a training step's few calls
FAST_ENTRIES = 100
RECORD_SECONDS = 0.5  # from turn to turn: with what a turn takes, a call is in the spool within 1 s (docs/wire.md)
RECORD_ENTRIES = 1_000  # …or as soon as so many calls wait
HURRY_ENTRIES = 20_000
TURN_SECONDS = 0.15  # for scalars, and again for rows: after each, what was converted goes to the journal and the disk
HASHED_AT_ONCE = 2**16  # tokens: they and two buffers stay in a core's cache


class Writer:
    """Turns queue entries into records. `turn` is called by one thread only."""

    def __init__(
        self, journal: Journal, process: int, sample_rows: int, tally: Tally, translate: Translate | None = None
    ) -> None:
        self.entries: deque[Entry] = deque()
        self.rows: deque[Rows] = deque()
        self.buffers = RowBuffers()
        self._journal = journal
        self._process = process
        self.heldout = HeldoutWindows()
        self._fingerprints = Fingerprints(sample_rows, self.heldout)
        self._tally = tally
        self._translate = translate
        self._pace = Pace()
        self._names = Names()
        self._builder = BatchBuilder(self._pace)
        self._seq: Counter[str] = Counter()
        self._held: Entry | None = None
        self._held_rows: Rows | None = None
        self.last_step = 0
        self.turning = False  # what was taken from the queues may not be in the journal yet

    def waiting(self) -> int:
        """How many calls no turn has taken yet."""
        return len(self.entries) + len(self.rows) + (self._held is not None) + (self._held_rows is not None)

    def turn(self, hurry: bool = False, last_chance: bool = False) -> None:
        """Moves what is ready into the journal, and the journal to the disk.

        With `last_chance`, what the device has not computed by now is left out and counted.
        """
        self._pace.hurry = hurry or len(self.entries) > HURRY_ENTRIES
        self.turning = True
        try:
            self._take_entries(time.monotonic() + TURN_SECONDS, last_chance)
            if self.rows or self._held_rows is not None:
                self._journal.flush()  # scalars do not wait until rows are hashed
            self._take_rows(time.monotonic() + TURN_SECONDS, hurry, last_chance)
        finally:
            self._journal.flush()
            self.turning = False

    def note_losses(self) -> None:
        """Says in the run's own record that something is missing from it."""
        counts = {reason: count for reason, count in self._tally.snapshot().items() if count and reason != "rejected"}
        if self._journal.dropped:
            counts["over memory or cap"] = self._journal.dropped
        if counts:
            value = {"trainer_hooks": {"dropped": counts}}
            self._record("events", {"step": self.last_step, "kind": "note", "value": value, "at": time.time()})

    def finish(self) -> None:
        """Adds the record that ends the segment."""
        self._record("finish", {"at": time.time()})

    # --- scalars, items, events: one order ---

    def _take_entries(self, until: float, last_chance: bool) -> None:
        try:
            while time.monotonic() < until:
                entry, self._held = self._held, None
                if entry is None:
                    if not self.entries:
                        break
                    entry = self.entries.popleft()
                try:
                    self._take(entry, last_chance)
                except NotReadyError:
                    if not last_chance:
                        self._held = entry  # everything behind it waits too: one step late, never out of order
                        break
                    self._tally.add("not ready", "a call was left out: the device has not computed its values")
                except UnusableError as error:
                    self._tally.add(error.reason, f"a call was left out: {error}")
                except Exception as error:
                    self._tally.add("refused", f"a call was left out: {text_of(error)}")
                self._pace.rest()
        except IndexError:  # the queue was full and the loop dropped the last entry meanwhile
            pass
        finally:
            self._close_batch()

    def _take(self, entry: Entry, last_chance: bool) -> None:
        if isinstance(entry, tuple):
            step, metrics, tokens, weights_segment, eval_sets, at = entry
            number, fault, counted = as_step(step), None, None
            try:
                counted = as_tokens(tokens)
            except UnusableError as error:
                fault = error
            # The last to raise NotReadyError, so that faults are counted once.
            values, consumed = convert_values(
                metrics, self._names, self._tally.add, self._pace, last_chance, self._translate
            )
            if counted is None:
                with contextlib.suppress(UnusableError):  # a count that is none: the point is placed by its step
                    counted = as_tokens(consumed)
            if fault is not None:
                self._tally.add(fault.reason, f"tokens at step {number} were left out: {fault}")
            row = Row(number, values, counted, at, weights_segment, eval_sets)
            self.last_step = number
            if row.values:
                if not self._builder.takes(row):
                    self._close_batch()
                self._builder.add(row)
        elif isinstance(entry, Items):
            self._close_batch()
            correct = entry.correct if isinstance(entry.correct, Packed) else packed(entry.correct)
            body = {"step": as_step(entry.step), "task": entry.task, "n": correct.n, "correct": correct.bits}
            self._record("items", body)
        else:
            self._close_batch()
            body = {"step": as_step(entry.step), "kind": entry.kind, "value": entry.value, "at": entry.at}
            self._record("events", body)

    def _close_batch(self) -> None:
        if len(self._builder):
            self._journal.append("batches", self._builder.body(self._process, self._next("batches")))

    # --- row fingerprints ---

    def _take_rows(self, until: float, closing: bool, last_chance: bool) -> None:
        try:
            while time.monotonic() < until:
                entry, self._held_rows = self._held_rows, None
                if entry is None:
                    if not self.rows:
                        break
                    entry = self.rows.popleft()
                try:
                    self._hash(entry)
                    self.buffers.give(entry[1])
                except NotReadyError:
                    if not last_chance:
                        self._held_rows = entry
                        break
                    self._tally.add("not ready", "rows were left out: the device has not computed their step")
                except UnusableError as error:
                    self._tally.add(error.reason, f"rows were left out: {error}")
        except IndexError:  # as above
            pass
        finally:
            self._record_fingerprints(closing)

    def _hash(self, entry: Rows) -> None:
        step, rows, host = as_step(entry[0]), entry[1], entry[2]
        at_once = max(HASHED_AT_ONCE // max(rows.shape[1], 1), 1)
        for start in range(0, len(rows), at_once):
            if self._fingerprints.full(step, host):
                self._record_fingerprints(everything=True)
            self._fingerprints.add(step, rows[start : start + at_once], host)
            self._pace.rest()

    def _record_fingerprints(self, everything: bool = False) -> None:
        for body in self._fingerprints.due(time.monotonic(), everything):
            self._record("fingerprints", body)

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
        self.written = threading.Event()  # all that can be sent is in the journal, if not on the disk yet
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
        while not self._closing.wait(self._pause(turned_at)):
            now = time.monotonic()
            due = now - turned_at >= RECORD_SECONDS
            if (due or len(self._writer.entries) >= RECORD_ENTRIES) and self._guarded(self._writer.turn):
                turned_at = now  # its beginning: a call that came during a turn waits no longer than others
        try:
            self._guarded(self._writer.turn, True)
            while self._writer.waiting() and time.monotonic() < self._deadline:
                time.sleep(0.01)
                self._guarded(self._writer.turn, True)
            for _ in range(1_000):  # each is bounded in time; none where the writer itself is at fault for ever
                if not self._writer.waiting():
                    break
                self._guarded(self._writer.turn, True, True)
            if self._with_finish:
                self._guarded(self._writer.note_losses)
                self._guarded(self._writer.finish)
            self._guarded(self._journal.flush, False, False)
            self.written.set()
            self._guarded(self._journal.close)
        finally:
            self.written.set()
            self.done.set()

    def _pause(self, turned_at: float) -> float:
        """Seconds until the next look: no later than a record is due."""
        if len(self._writer.entries) > FAST_ENTRIES:
            return POLL_SECONDS
        return min(max(turned_at + RECORD_SECONDS - time.monotonic(), POLL_SECONDS), IDLE_SECONDS)

    def _guarded(self, call: Any, *arguments: Any) -> bool:
        """Runs one piece of work; a fault in it is said once and must end neither the thread nor the run."""
        try:
            call(*arguments)
        except BaseException as error:  # also a SystemExit or an extension's panic, out of a value's __float__
            self._tally.add("faults", f"fault while writing, going on: {text_of(error)}")
            return False
        return True
