"""What a living process has recorded and not delivered yet: on disk, or in bounded memory while there is no disk.

One thread appends and flushes, another one peeks and acknowledges. Both hold the lock only around file writes and list
operations; the training loop never takes it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from trainer_hooks.spool import Cursor, Position, Record, Spool, part_ends, save_position
from trainer_hooks.stores import Appender, LocalStore
from trainer_hooks.tally import Tally, text_of

CAP_BYTES = 10 * 10**9
PART_BYTES = 256 * 2**20
MEMORY_RECORDS = 10_000
MEMORY_BYTES = 256 * 2**20
SYNC_SECONDS = 5.0  # a crash of the machine loses at most this much
RETRY_SECONDS = 30.0  # between attempts to write to a spool that could not be written
CAP_CHECK_SECONDS = 60.0


class Journal:
    """The records of one process of one segment, from `append` to `acknowledge`, in order.

    `also` gets every record as it is appended, on the thread that appends.
    """

    def __init__(
        self,
        store: LocalStore,
        spool: Spool,
        segment_body: bytes,
        tally: Tally,
        address: str = "",
        cap_bytes: int = CAP_BYTES,
        memory_records: int = MEMORY_RECORDS,
        also: Callable[[Record], None] | None = None,
    ) -> None:
        self.store = store
        self.spool = spool
        self.segment = Record(0, "segment", spool.segment, spool.process, segment_body)
        self.appended = 0
        self.acknowledged = 0
        self.dropped = 0
        self.changed = threading.Event()
        self._tally = tally
        self._address = address
        self._cap_bytes = cap_bytes
        self._part_bytes = min(PART_BYTES, max(cap_bytes // 8, 1))
        self._memory_records = memory_records
        self._also = also
        self._lock = threading.Lock()
        self._memory: deque[Record] = deque()
        self._memory_bytes = 0
        self._ends: dict[int, int] = {}
        self._last_number: dict[int, int] = {}  # of each part
        self._lost_through = -1
        self._cursor = Cursor(store, spool, Position(), self._ends)
        self._part = -1
        self._appender: Appender | None = None
        self._retry_at = 0.0
        self._in_memory = False  # whether what is in memory may be sent from there
        self._synced_at = self._saved_at = time.monotonic()
        self._cap_checked_at = 0.0
        self._dirty = False
        self._add(self.segment)

    # --- the writing thread ---

    def append(self, kind: str, body: bytes) -> None:
        """Takes one record; it is on its way to the disk with the next `flush`."""
        self._add(Record(self.appended, kind, self.spool.segment, self.spool.process, body))

    def _add(self, record: Record) -> None:
        with self._lock:
            self._memory.append(record)
            self._memory_bytes += len(record.body)
            self.appended += 1
            dropped = self.dropped
            while len(self._memory) > self._memory_records or self._memory_bytes > MEMORY_BYTES:
                self._lost_through = self._memory[0].number
                self._forget_oldest()
                self.dropped += 1
        if self._also is not None:
            self._also(record)
        if self.dropped > dropped:
            self._tally.say_once("memory", "memory for unsent records is full; the oldest are dropped and counted")

    def flush(self, everything: bool = False, sync: bool = True) -> None:
        """Hands what was appended to the operating system, and to the disk every 5 s or with `everything`.

        Without `sync` it does not wait for the disk.
        """
        now = time.monotonic()
        if now >= self._retry_at:
            try:
                self._write(now, everything, sync)
                self._retry_at, self._in_memory = 0.0, False
            except Exception as error:
                self._give_up_for_now(now, error)
        self.changed.set()

    def _give_up_for_now(self, now: float, error: Exception) -> None:
        self._retry_at, self._in_memory = now + RETRY_SECONDS, True
        self._close_part()
        if self._part not in self._last_number:
            self._part -= 1  # nothing whole is in it: the next attempt takes the same file
        self._tally.say_once(
            "spool",
            f"cannot write the spool in {self.store.address} ({text_of(error)}); the last "
            f"{self._memory_records:,} records are kept in memory. Free some space or set PACENOTE_SPOOL_DIR",
        )

    def _write(self, now: float, everything: bool, sync: bool) -> None:
        self._write_parts()
        if not sync:
            return
        if self._dirty and self._appender is not None and (everything or now - self._synced_at >= SYNC_SECONDS):
            self._appender.sync()
            self._dirty, self._synced_at = False, now
        if now - self._cap_checked_at >= CAP_CHECK_SECONDS:
            self._cap_checked_at = now
            self._keep_under_cap()

    def _write_parts(self) -> None:
        if self._appender is not None and self._appender.gone():
            self._replace_removed_part()
        while True:
            with self._lock:
                if not self._memory:
                    return
                record = self._memory[0]
                if self._appender is None:
                    self._part += 1
                    self._appender = Appender(self.store.folder / self.spool.part(self._part))
                    if record.number > 0:
                        self._appender.write(self.segment.frame())
                self._appender.write(record.frame())
                self._forget_oldest()
                self._ends[self._part] = self._appender.end
                self._last_number[self._part] = record.number
                self._dirty = True
            if self._appender.end >= self._part_bytes:
                self._appender.sync()
                self._close_part()
                self._cap_checked_at = 0.0

    def _replace_removed_part(self) -> None:
        """Goes on in a new part. What was in the removed one is lost, unless the sending thread holds it open."""
        self._close_part()
        self._tally.say_once(
            "removed", f"the spool in {self.store.address} was removed under the run; going on in a new file"
        )
        with self._lock:
            if not self._cursor.holds(self._part):
                self._lose_part(self._part)

    def _forget_oldest(self) -> None:
        self._memory_bytes -= len(self._memory.popleft().body)

    def _keep_under_cap(self) -> None:
        """Removes the oldest parts, whoever wrote them, until all spools together are below the cap."""
        spools = part_ends(self.store)
        total = sum(size for parts in spools.values() for size in parts.values())
        for spool, parts in spools.items():
            for part, size in sorted(parts.items()):
                if total <= self._cap_bytes:
                    return
                if (spool == self.spool and part == self._part) or self.store.in_use(spool.part(part)):
                    continue
                self.store.remove(spool.part(part))
                total -= size
                if spool == self.spool:
                    with self._lock:
                        self._lose_part(part)
                self._tally.add(
                    "parts over cap", f"spools in {self.store.address} reached their cap; the oldest are removed"
                )

    def _lose_part(self, part: int) -> None:
        """Counts what was in a part and was not acknowledged; the lock is held."""
        self._ends.pop(part, None)
        self._lose_through(self._last_number.pop(part, -1))

    def _lose_through(self, last: int) -> None:
        first = max(self._cursor.position.number, self._lost_through)
        if last > first:
            self.dropped += last - first
            self._lost_through = last

    def lose_memory(self) -> None:
        """Counts as dropped what is neither written nor sent when everything ends."""
        with self._lock:
            if self._memory:
                self._lose_through(self._memory[-1].number)
                self._memory.clear()
                self._memory_bytes = 0

    def _close_part(self) -> None:
        if self._appender is not None:
            self._appender.close()
            self._appender = None

    def close(self) -> None:
        """Writes what is left to the disk and closes the file."""
        self._retry_at = 0.0  # one last attempt
        self.flush(everything=True)
        self._close_part()

    def close_in_child(self) -> None:
        """Closes the inherited file in a forked child; the parent keeps its lock."""
        if self._appender is not None:
            self._appender.close()

    def ends(self) -> dict[int, int]:
        """The parts on disk, and up to where each holds whole records."""
        with self._lock:
            return dict(self._ends)

    # --- the sending thread ---

    def peek(self) -> Record | None:
        """The oldest record that is not acknowledged."""
        with self._lock:
            record = self._cursor.peek()
            while self._cursor.missing:
                self._lose_part(self._cursor.missing.pop())
            if record is None and self._in_memory and self._memory:
                record = self._memory[0]
            return record

    def acknowledge(self, record: Record) -> None:
        """Takes `record`, the last one peeked at, as delivered or refused for good."""
        with self._lock:
            self._cursor.acknowledge(record.number)
            if self._memory and self._memory[0].number == record.number:
                self._forget_oldest()
            self.acknowledged += 1
            if record.number <= self._lost_through:  # it was dropped while on its way
                self.dropped -= 1
        if time.monotonic() - self._saved_at >= 1.0:
            self.save()

    def save(self) -> None:
        """Remembers how far the service has it, so that a later `sync` need not begin at the beginning."""
        self._saved_at = time.monotonic()
        if self._address and self._ends:
            try:
                save_position(self.store, self.spool, self._address, self._cursor.position)
            except Exception as error:
                why = text_of(error)
                self._tally.say_once("position", f"cannot remember what was sent ({why}); a sync will send it again")

    def left(self) -> int:
        """Records that are neither acknowledged nor dropped."""
        return max(0, self.appended - self.acknowledged - self.dropped)
