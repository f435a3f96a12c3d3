"""The copy of a spool at an fsspec address, for machines that are deleted together with their disk.

Objects cannot grow, so the copy is numbered parts, each written once (docs/wire.md, "Remote copy"). A thread of its
own writes them: a slow, failing or hanging store costs the training loop nothing, and the local spool nothing either.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from trainer_hooks.spool import Cursor, Position, Record, Spool
from trainer_hooks.stores import Store
from trainer_hooks.tally import Tally, text_of

COPY_SECONDS = 4.0  # a record waits at most so long for others to share its part
PART_BYTES = 4 * 2**20  # …or until so much waits
BLOCK_PARTS = 1000  # in one folder: what one listing of an object store answers
MEMORY_BYTES = 32 * 2**20  # of records that wait for the store; beyond it they are read back from the local spool
CALL_SECONDS = 20.0  # for one call of the store
HANGING_CALLS = 8  # that may be left behind unanswered before no further one is tried
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0
SUFFIX = ".part"
_T = TypeVar("_T")
_LAUNCH = re.compile(r"\d{8}T\d{6}Z-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


class PartName(NamedTuple):
    """Where a part stands: `<launch>/<process>/<block>/<part>.part`, all in order of time when sorted as text."""

    launch: str
    process: int
    part: int

    @property
    def block(self) -> str:
        """The folder of this part and its 999 neighbours."""
        return f"{self.launch}/{self.process:05d}/{self.part // BLOCK_PARTS:05d}"

    @property
    def path(self) -> str:
        """The whole name in the store."""
        return f"{self.block}/{self.part:08d}{SUFFIX}"


def launch_folder(segment: str, started_at: float) -> str:
    """The folder of a launch: when it started, and its segment."""
    return f"{datetime.fromtimestamp(started_at, UTC):%Y%m%dT%H%M%SZ}-{segment}"


def segment_of(folder: str) -> str | None:
    """The segment of a launch's folder; None for any other name."""
    match = _LAUNCH.fullmatch(folder)
    return match[1] if match else None


def part_number(name: str) -> int | None:
    """The number of a part's file; None for any other name."""
    digits = name.removesuffix(SUFFIX)
    return int(digits) if name.endswith(SUFFIX) and digits.isdigit() else None


class _Call:
    """A call that another thread makes."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self._call = call

    def make(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        self.done.set()


class _Caller(threading.Thread):
    """Makes one call after the other, until it is given None."""

    def __init__(self) -> None:
        super().__init__(name="pacenote-store", daemon=True)
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()

    def run(self) -> None:
        while (call := self.calls.get()) is not None:
            call.make()
            del call  # it may hold what ends this thread once nobody holds it any more


class InTime:
    """Calls that are given up after a while; what hangs is left behind in a daemon thread, a few times at most.

    The thread is kept for the next call: at the end of the interpreter no new one could be started.
    """

    def __init__(self) -> None:
        self._caller: _Caller | None = None
        self._left: list[_Caller] = []

    def __call__(self, call: Callable[[], Any], seconds: float) -> Any:
        """The result of `call`; raises what it raises, or TimeoutError."""
        if self._caller is None:
            self._left = [caller for caller in self._left if caller.is_alive()]
            if len(self._left) >= HANGING_CALLS:
                raise TimeoutError(f"{len(self._left)} calls still hang")
            self._caller = _Caller()
            self._caller.start()
        made, caller = _Call(call), self._caller
        caller.calls.put(made)
        try:
            answered = made.done.wait(seconds)
        except BaseException:  # Ctrl-C
            self._leave(caller)
            raise
        if not answered:
            self._leave(caller)
            raise TimeoutError(f"no answer for {seconds:.3g} s")
        if made.error is not None:
            raise made.error
        return made.result

    def close(self) -> None:
        """Ends the thread that waits for the next call."""
        if self._caller is not None:
            self._leave(self._caller)

    def __del__(self) -> None:
        self.close()

    def _leave(self, caller: _Caller) -> None:
        caller.calls.put(None)
        self._left.append(caller)
        self._caller = None


def before_shutdown(call: Callable[[], None]) -> None:
    """Has `call` made when the interpreter begins to end: later, at `atexit`, no package of fsspec can open a
    connection, because asyncio gets no thread to look a name up in."""
    import_module("concurrent.futures.thread")  # what it registers is called after what is registered later
    register = getattr(
        threading, "_register_atexit", None
    )  # of CPython since 3.9; without it the last seconds are lost
    if register is not None:
        register(call)


class RemoteCopy(threading.Thread):
    """Writes every record of a journal to a store, in order, and never holds the journal up.

    `local` and `ends` are the journal's own spool and up to where its parts are whole: what did not fit into memory
    while the store was away is read from there.
    """

    def __init__(
        self,
        connect: Callable[[], Store],
        address: str,
        spool: Spool,
        segment_body: bytes,
        local: Store,
        ends: Callable[[], dict[int, int]],
        tally: Tally,
    ) -> None:
        super().__init__(name="pacenote-copier", daemon=True)
        self.address = address
        self.lost = 0  # records that are in no part and never will be
        self.done = threading.Event()
        self._connect = connect
        self._segment = Record(0, "segment", spool.segment, spool.process, segment_body)
        started_at = float(json.loads(segment_body)["started_at"])
        self._place = PartName(launch_folder(spool.segment, started_at), spool.process, 0)
        self._ends_of_journal = ends
        self._ends: dict[int, int] = {}
        self._spooled = Cursor(local, spool, Position(), self._ends)
        self._tally = tally
        self._store: Store | None = None
        self._in_time = InTime()
        self._lock = threading.Lock()
        self._waiting: deque[Record] = deque()
        self._waiting_bytes = 0
        self._waiting_since = 0.0
        self._added = 0
        self._taken = -1  # the last record that is in a part, or lost
        self._copied = -1  # …and in the store
        self._part: bytes | None = None  # what is being written: the same bytes again until the store has them
        self._failures = 0
        self._closing = threading.Event()
        self._hurry = threading.Event()
        self._abandoned = threading.Event()
        self._wake = threading.Event()  # before the next part is due
        self._tried = threading.Event()  # to write the first part

    def add(self, record: Record) -> None:
        """Takes the next record. Called by the writing thread; takes microseconds."""
        with self._lock:
            if not self._waiting:
                self._waiting_since = time.monotonic()
            self._waiting.append(record)
            self._waiting_bytes += len(record.body)
            self._added = record.number + 1
            while self._waiting_bytes > MEMORY_BYTES:
                self._waiting_bytes -= len(self._waiting.popleft().body)
            if self._waiting_bytes >= PART_BYTES or self._hurry.is_set() or self._taken < 0:
                self._wake.set()

    def close(self) -> None:
        """Everything was added: write it at once, then end."""
        self._closing.set()
        self._wake.set()

    def drain(self, timeout: float) -> None:
        """Writes what was added so far at once, for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self._hurry.set()
        self._wake.set()
        while self.is_alive() and self.left() > self.lost and time.monotonic() < deadline:
            time.sleep(0.01)
        self._hurry.clear()

    def abandon(self) -> None:
        """Ends the thread after the call it is waiting for, whatever is left."""
        self._abandoned.set()
        self.close()

    def wait_for_first(self, timeout: float) -> None:
        """Waits until the first part is in the store, or could not be written: what a store's package needs threads for
        is there then. Since Python 3.12 none can be started once the interpreter ends, and the last words need them."""
        self._tried.wait(timeout)

    def left(self) -> int:
        """Records that were added and are not in the store."""
        return max(0, self._added - 1 - self._copied) + self.lost

    def run(self) -> None:
        try:
            self._guarded(self._open)
            while not self._abandoned.is_set():
                closing = self._closing.is_set()  # asked first, so that nothing can be added in between
                wait = self._guarded_turn(closing or self._hurry.is_set())
                if wait is not None:
                    self._abandoned.wait(wait) if closing else self._closing.wait(wait)
                elif closing:
                    break
                else:
                    self._wake.wait(self._pause())
                    self._wake.clear()
        finally:
            self._in_time.close()
            self.done.set()

    def _pause(self) -> float:
        """Seconds until a part is due: a record that comes meanwhile is not due before that."""
        with self._lock:
            waited = time.monotonic() - self._waiting_since if self._waiting else 0.0
        return max(COPY_SECONDS - waited, 0.001)

    def _guarded_turn(self, everything: bool) -> float | None:
        """One piece of work. Returns seconds to wait before the next; None if there is nothing to do."""

        def turn() -> bool:
            if self._part is None:
                self._part = self._next_part(everything)
            if self._part is None:
                return False
            self._write(self._part)
            return True

        worked = self._guarded(turn)
        if worked is None:
            return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(self._failures - 1, 10)) * random.uniform(0.5, 1.0)
        return 0.0 if worked else None

    def _guarded(self, call: Callable[[], _T]) -> _T | None:
        try:
            return call()
        except BaseException as error:  # stores behind fsspec raise what they like
            self._failures += 1
            self._tried.set()
            self._tally.say_once(
                "remote copy",
                f"cannot copy the spool to {self.address} ({text_of(error)}); trying on, training is not held up",
            )
            return None

    def _open(self) -> Store:
        store: Store = self._store or self._in_time(self._connect, CALL_SECONDS)
        self._store = store
        return store

    def _write(self, data: bytes) -> None:
        store, path = self._open(), self._place.path
        # Given up after a time-out, it may still arrive: harmless, for it is the same bytes under the same name.
        self._in_time(lambda: store.put(path, data), CALL_SECONDS)
        self._failures, self._part, self._copied = 0, None, self._taken
        self._tried.set()
        self._place = self._place._replace(part=self._place.part + 1)

    def _next_part(self, everything: bool) -> bytes | None:
        """The frames of the next part; None if it is not time for one."""
        with self._lock:
            if not self._waiting:
                return None
            first = self._waiting[0].number
            waited = time.monotonic() - self._waiting_since
            due = everything or waited >= COPY_SECONDS or self._waiting_bytes >= PART_BYTES or self._taken < 0
        frames = self._from_spool(first) if first > self._taken + 1 else []
        if not frames and not due:
            return None
        frames = frames or self._from_memory()
        if self._place.part % BLOCK_PARTS == 0 and self._place.part > 0:
            frames.insert(0, self._segment.frame())  # every block can be read alone
        return b"".join(frames)

    def _from_memory(self) -> list[bytes]:
        taken: list[Record] = []
        with self._lock:
            size = 0
            while self._waiting and size < PART_BYTES:
                taken.append(self._waiting.popleft())
                size += len(taken[-1].body)
            self._waiting_bytes -= size
            self._waiting_since = time.monotonic()
            if taken:
                self._skip_to(taken[0].number)
                self._taken = taken[-1].number
        return [record.frame() for record in taken]

    def _from_spool(self, before: int) -> list[bytes]:
        """Records that memory had no room for, from the local spool, up to the size of a part."""
        self._ends.clear()
        self._ends.update(self._ends_of_journal())
        self._spooled.acknowledge(self._taken)
        frames: list[bytes] = []
        size = 0
        while size < PART_BYTES and (record := self._spooled.peek()) is not None and record.number < before:
            self._skip_to(record.number)
            frames.append(record.frame())
            size += len(frames[-1])
            self._taken = record.number
            self._spooled.acknowledge(record.number)
        return frames

    def _skip_to(self, number: int) -> None:
        """Counts what is neither in memory nor in the local spool any more."""
        lost = number - self._taken - 1
        if lost > 0:
            self.lost += lost
            self._tally.say_once(
                "copy lost", f"the copy in {self.address} leaves records out: they are in the local spool no longer"
            )
