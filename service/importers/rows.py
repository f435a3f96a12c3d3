"""What line by line importers give: rows, and an account of what they could not read."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

EMPTY_LINE = "the line holds nothing known"
CUT_OFF = "the last line is cut off"
NO_STEP = "no whole step of 0 or more"
EARLIEST = 1e8  # unix seconds, 1973
NO_NUMBER = "the cell holds no number"

_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([,'’ \u00a0\u202f])\d{3}(?:\1\d{3})*(?:\.\d*)?")
_PLAIN = re.compile(r"[+-]?\d+(?:\.\d*)?")
_FORTRAN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))[dD]([+-]?\d+)")


class LogError(ValueError):
    """A log cannot be imported; the message is one line: what, where, and what to do. What other libraries say in it
    may have several."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(line.strip() for line in message.splitlines() if line.strip()))


class Row(NamedTuple):
    """One value of one metric. `metric` is the log's own name, `step` its own count, `time` unix seconds or None."""

    step: int
    metric: str
    value: float
    time: float | None = None


@dataclass(slots=True)
class Account:
    """What was read: lines in all, lines that held nothing known (the first of them), if the last was cut off.

    `refused` counts values (and lines) that are not stored, by reason; `places` says where each reason came up first.
    `notes` are sentences about what was understood of the log, `stated` are numbers that its config names.
    """

    lines: int = 0
    sorted_by_metric: bool = False  # rows are not in order of time
    skipped: int = 0
    first_skipped: int | None = None
    truncated: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    places: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])
    stated: dict[str, set[int]] = field(default_factory=dict[str, set[int]])

    def skip(self, line: int) -> None:
        """Count a line that held nothing known."""
        self.skipped += 1
        if self.first_skipped is None:
            self.first_skipped = line
        self.refuse(EMPTY_LINE, f"line {line}")

    def cut_off(self, line: int) -> None:
        """Count a last line that is not whole."""
        self.truncated += 1
        self.refuse(CUT_OFF, f"line {line}")

    def refuse(self, reason: str, where: str, count: int = 1) -> None:
        """Count values that are not stored."""
        self.refused[reason] += count
        self.places.setdefault(reason, where)

    def note(self, sentence: str) -> None:
        """Keep a sentence about the log, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)


@dataclass(slots=True)
class Texts:
    """Which names held numbers, and how often each held text. A name that never holds a number is no metric."""

    numbers: set[str] = field(default_factory=set[str])
    count: Counter[str] = field(default_factory=Counter[str])

    def tell(self, account: Account) -> None:
        """Count the texts that stood where numbers belong."""
        for name, count in self.count.items():
            if name in self.numbers:
                account.refuse(NO_NUMBER, f"{name[:40]!r}", count)


def step_of_tokens(tokens: float | None, tokens_per_step: float) -> int | None:
    """The step at which so many tokens had been consumed, None where it cannot be one."""
    steps = float("nan") if tokens is None else tokens / tokens_per_step
    return round(steps) if 0 <= steps <= 2**62 else None


def number(text: str) -> float | None:
    """The number a cell holds, None if it holds none.

    NaN and infinities in any usual spelling, thousands separators ("1,234.5", "1 234", "1'234"), Fortran's exponents
    ("1.0D+00") and percent signs ("52.5%" is 52.5) are read.
    """
    if "_" in text:
        return None
    try:
        return float(text)  # knows nan, inf, infinity in any case, and white space around them
    except ValueError:
        text = text.strip().removesuffix("%").rstrip()
    thousands = _THOUSANDS.fullmatch(text)
    if thousands:
        return float(text.replace(thousands[1], ""))
    fortran = _FORTRAN.fullmatch(text)
    if fortran:
        return float(f"{fortran[1]}e{fortran[2]}")
    return float(text) if _PLAIN.fullmatch(text) else None


def whole(text: str) -> int | None:
    """The whole number a cell holds ("1413814.0" too), None if it holds none."""
    value = number(text)
    if value is None or value != value or abs(value) > 2**62 or value != int(value):
        return None
    return int(value)


def plain(value: Any) -> float | None:
    """The number a JSON value is (also as text such as "NaN"), None for everything else; true and false are none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        return number(value)
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def unix_seconds(value: Any) -> float | None:
    """A time as unix seconds: seconds or milliseconds as a number, or ISO 8601 text (UTC if it names no zone).

    A small number is a duration, and no time.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            moment = None
        if moment is not None:
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    seconds = plain(value)
    if seconds is None or not EARLIEST < seconds < 1e14:
        return None
    return seconds / 1000 if seconds > 1e11 else seconds
