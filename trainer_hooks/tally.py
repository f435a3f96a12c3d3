"""Counting what went wrong, with one warning for each kind of it."""

from __future__ import annotations

import logging
import threading
from collections import Counter

LOG = logging.getLogger("trainer_hooks")


def text_of(error: BaseException) -> str:
    """An exception in one short line, also if it cannot even be printed."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text:.300}"


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

    def snapshot(self) -> dict[str, int]:
        """The counts as they are now."""
        with self._lock:
            return dict(self.counts)

    def say_once(self, reason: str, message: str) -> None:
        """Logs `message` unless something was said for `reason` before."""
        with self._lock:
            if reason in self._said:
                return
            self._said.add(reason)
        LOG.warning("pacenote: %s", message)
