"""What every importer gives: rows, and an account of what it could not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class LogError(ValueError):
    """A log cannot be imported; the message is one line: what, where, and what to do."""


class Row(NamedTuple):
    """One value of one metric. `metric` is the log's own name, `step` its own count, `time` unix seconds or None."""

    step: int
    metric: str
    value: float
    time: float | None = None


@dataclass(slots=True)
class Account:
    """What was read: lines in all, lines that held nothing known (the first of them), if the last was cut off."""

    lines: int = 0
    sorted_by_metric: bool = False  # rows are not in order of time
    skipped: int = 0
    first_skipped: int | None = None
    truncated: int = 0

    def skip(self, line: int) -> None:
        """Count a line that held nothing known."""
        self.skipped += 1
        if self.first_skipped is None:
            self.first_skipped = line


def number(text: str) -> float | None:
    """The number a cell holds (NaN and infinities in any usual spelling), None if it holds none."""
    try:
        return float(text.strip())  # knows nan, inf, infinity in any case
    except ValueError:
        return None


def whole(text: str) -> int | None:
    """The whole number a cell holds ("1413814.0" too), None if it holds none."""
    value = number(text)
    if value is None or value != value or abs(value) > 2**62 or value != int(value):
        return None
    return int(value)
