"""Answers that were made before. They are kept by the version of the data they show, so they are never old."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

MOST_BYTES = 64 * 1024 * 1024
MOST_BYTES_EACH = 4 * 1024 * 1024


class AnswerCache:
    """The answers that were used last, up to a number of bytes. Any thread may use it."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> bytes | None:
        """The answer kept under this key."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
            return self._answers.get(key)

    def put(self, key: Hashable, answer: bytes) -> None:
        """Keep an answer, unless it is very large."""
        if len(answer) > MOST_BYTES_EACH:
            return
        with self._lock:
            self._bytes += len(answer) - len(self._answers.pop(key, b""))
            self._answers[key] = answer
            while self._bytes > self._most_bytes:
                self._bytes -= len(self._answers.popitem(last=False)[1])
