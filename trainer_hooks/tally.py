"""Counting what went wrong, with one warning for each kind of it."""

from __future__ import annotations

import logging
import threading
from collections import Counter

LOG = logging.getLogger("trainer_hooks")


class Tally:
    """Counts by reason. Each reason is said once in the log; the counts are in the report of `finish`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def add(self, reason: str, message: str, count: int = 1) -> None:
        """Counts `count` more of `reason`; logs `message` if it is the first time."""
        with self._lock:
            self.counts[reason] += count
        self.say_once(reason, message)

    def say_once(self, reason: str, message: str) -> None:
        """Logs `message` unless something was said for `reason` before."""
        with self._lock:
            if reason in self._said:
                return
            self._said.add(reason)
        LOG.warning("pacenote: %s", message)
