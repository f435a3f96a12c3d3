"""Tells listeners inside this process what has just changed."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

QUEUE_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class Notice:
    """One change. `number` grows by one each time; `kind` is points, settings, verdict, alert, run or
    delivery."""

    number: int
    kind: str
    body: dict[str, Any]


class Broker:
    """Hands every notice to every listener; one that does not keep up loses the oldest ones. Any thread may publish."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Queue[Notice]]] = []

    def publish(self, kind: str, body: dict[str, Any]) -> None:
        """Tell all listeners. Never blocks, never raises."""
        with self._lock:
            notice = Notice(next(self._numbers), kind, body)
            listeners = list(self._listeners)
        for loop, queue in listeners:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_put, queue, notice)

    @contextmanager
    def listening(self) -> Generator[asyncio.Queue[Notice]]:
        """A queue of what is published from now on. Use inside a running event loop."""
        entry = (asyncio.get_running_loop(), asyncio.Queue[Notice](QUEUE_LENGTH))
        with self._lock:
            self._listeners.append(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._listeners.remove(entry)


def _put(queue: asyncio.Queue[Notice], notice: Notice) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(notice)
