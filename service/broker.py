"""Tells listeners inside this process what has just changed."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

QUEUE_LENGTH = 1000
KEPT = 1000  # notices for listeners that come back
STRIDE = 1024  # between two numbers: the rest by it tells one process from another on the same database
MISSED = "missed"  # to one listener: more has changed than it can still be told; read everything again


@dataclass(frozen=True, slots=True)
class Notice:
    """One change. `number` grows each time, and from one process to the next; `kind` is points, settings, verdict,
    alert, run or delivery, or `missed`."""

    number: int
    kind: str
    body: dict[str, Any]


class Broker:
    """Hands every notice to every listener; one that does not keep up loses the oldest ones, and is told so. Any thread
    may publish."""

    def __init__(self) -> None:
        # Microseconds: above every number of the process before.
        self._last = time.time_ns() // 1000 // STRIDE * STRIDE + random.randrange(STRIDE)
        self._overheard: list[Callable[[Notice], None]] = []
        self._kept: deque[Notice] = deque(maxlen=KEPT)
        self._lock = threading.Lock()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Queue[Notice]]] = []

    @property
    def last(self) -> int:
        """The number of the newest notice."""
        return self._last

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def overheard_by(self, hear: Callable[[Notice], None]) -> None:
        """Call `hear` with what is published from now on, in the publisher's thread; it must neither block nor
        raise."""
        self._overheard.append(hear)

    def publish(self, kind: str, body: dict[str, Any], *, heard: bool = True) -> None:
        """Tell all listeners. Never blocks, never raises. `heard`: also those who overhear."""
        with self._lock:
            self._last += STRIDE
            notice = Notice(self._last, kind, body)
            self._kept.append(notice)
            for hear in self._overheard if heard else ():
                hear(notice)
            for loop, queue in self._listeners:  # handed over in order: the lock is held meanwhile
                with suppress(RuntimeError):  # its loop has been closed
                    loop.call_soon_threadsafe(_put, queue, notice)

    @contextmanager
    def listening(self, since: int | None = None) -> Generator[asyncio.Queue[Notice]]:
        """A queue of what is published from now on, or since the notice of that number. Use inside a running event
        loop."""
        entry = (asyncio.get_running_loop(), asyncio.Queue[Notice](QUEUE_LENGTH))
        with self._lock:
            self._listeners.append(entry)
            for notice in self._since(since):
                _put(entry[1], notice)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._listeners.remove(entry)

    def _since(self, number: int | None) -> list[Notice]:
        if number is None or number == self._last:
            return []
        oldest = self._kept[0].number if self._kept else self._last + STRIDE
        if oldest - STRIDE <= number < self._last and (self._last - number) % STRIDE == 0:
            return [notice for notice in self._kept if notice.number > number]
        return [Notice(self._last, MISSED, {})]


def _put(queue: asyncio.Queue[Notice], notice: Notice) -> None:
    if queue.full():
        queue.get_nowait()
        queue.get_nowait()
        queue.put_nowait(Notice(notice.number, MISSED, {}))
    queue.put_nowait(notice)
