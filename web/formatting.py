"""Numbers and times as people read them. A true minus sign, commas between thousands, as in
every sentence of the service, T/B/M/k for tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from service.reports import words
from service.runs.fields import utc_time

MINUS = "\u2212"
THIN_SPACE = "\u202f"
NOTHING = "\u2013"

COUNTED = frozenset(("entries", "steps", "rows", "points", "observations", "s", "sd"))

RULES = {
    "train_drift": "Train drift",
    "train_only_drift": "Train-only drift",
    "repeated_rows": "Repeated rows",
    "non_finite": "Non-finite loss",
    "heldout_regression": "Held-out regression",
    "heldout_text": "Held-out text",
}
FAMILIES = {
    "curve_and_data": "Curve and data",
    "identity": "Same experiment",
    "stability": "Stability",
    "operation": "Operation",
}


def number(value: Any, digits: int = 3, *, fixed: bool = False) -> str:
    """A value to `digits` decimals, very small and very large ones in powers of ten unless `fixed`; text as it is."""
    real = as_float(value)
    if real is None:
        return NOTHING if value is None else str(value)
    if not math.isfinite(real):
        return "NaN" if math.isnan(real) else ("∞" if real > 0 else f"{MINUS}∞")
    if real == int(real) and abs(real) < 1e15 and not isinstance(value, float):
        return f"{int(real):,}".replace("-", MINUS)
    if not fixed and real != 0 and (abs(real) < 0.5 * 10.0**-digits or abs(real) >= 1e7):
        mantissa, exponent = f"{real:.2e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    text = f"{real:,.{digits}f}"
    if not float(text.replace(",", "")):
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


def signed(value: Any, digits: int = 3, *, fixed: bool = False) -> str:
    """The same with a plus sign before positive numbers."""
    real = as_float(value)
    text = number(value, digits, fixed=fixed)
    return f"+{text}" if real is not None and real > 0 and text.strip("0.") else text


def as_float(value: Any) -> float | None:
    """A number of a judgement's JSON, where "NaN" and "Infinity" are strings; None if it is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value.replace("Infinity", "inf"))
    return None


def estimate(value: Any, interval: Sequence[Any] | None = None, digits: int = 3, *, sign: bool = True) -> str:
    """`−0.384 ± 0.021` where the interval lies evenly about the value, else `−0.384 (−0.410 to −0.340)`."""
    show = signed if sign else number
    text = show(value, digits)
    if as_float(value) is None or interval is None or len(interval) != 2:
        return text
    middle, low, high = as_float(value), as_float(interval[0]), as_float(interval[1])
    if middle is None or low is None or high is None or not all(map(math.isfinite, (middle, low, high))) or high <= low:
        return text
    half = (high - low) / 2
    digits = min(max(digits, math.ceil(-math.log10(half))), 9)  # at least one digit of the interval shows
    text = show(value, digits, fixed=True)
    if abs((high - middle) - (middle - low)) <= 0.02 * (high - low):
        return f"{text} ± {number(half, digits, fixed=True)}"
    return f"{text} ({show(low, digits, fixed=True)} to {show(high, digits, fixed=True)})"


def percent(share: Any, digits: int = 1) -> str:
    """A share from 0 to 1 as a percentage."""
    real = as_float(share)
    if real is None or not math.isfinite(real):
        return NOTHING
    if 0 < abs(real) < 0.5 * 10.0 ** (-digits - 2):
        return f"<{10.0**-digits:.{digits}f} %".replace(" ", THIN_SPACE)
    return f"{100 * real:.{digits}f}{THIN_SPACE}%".replace("-", MINUS)


def in_unit(value: Any, unit: str, interval: Sequence[Any] | None = None, *, sign: bool = True) -> str:
    """An estimate with its unit; shares are shown as percentages, and words that are no number as they are."""
    if value is None:
        return "not known"
    if isinstance(value, str) and as_float(value) is None:
        words = value.replace(" … ", " to ").replace("-", MINUS) if value[:1] in "+-" else value
        return value if value.startswith("cannot tell") else f"{words} {unit}".strip()
    if unit in ("share", "fraction", "1"):
        ends = "" if interval is None else f" ({percent(interval[0])} to {percent(interval[1])})"
        return f"{percent(value)}{ends}"
    return f"{estimate(value, interval, _digits(value, unit, interval), sign=sign)} {unit}".strip()


def _digits(value: Any, unit: str, interval: Sequence[Any] | None) -> int:
    """Decimals worth showing: none of what is counted, or of a rate in the hundreds."""
    real = as_float(value)
    if real is None or interval is not None or not math.isfinite(real):
        return 3
    whole = abs(real) >= 100 if unit == "tokens/s" else unit in COUNTED and real == int(real)
    return 0 if whole else 3


def tokens(value: Any) -> str:
    """1.23T, 45.6B, 789M, 12.3k: three significant digits."""
    return words.tokens(as_float(value))


def step(value: Any) -> str:
    """1,413,814, with commas."""
    real = as_float(value)
    return NOTHING if real is None or not math.isfinite(real) else number(round(real))


def span(interval: Sequence[Any] | None, show: str = "step") -> str:
    """An interval of steps or tokens; one number where both ends read the same."""
    if interval is None or len(interval) != 2:
        return NOTHING
    form = tokens if show == "tokens" else step
    low, high = form(interval[0]), form(interval[1])
    return high if low == high else f"{low} to {high}"


def age(seconds: float) -> str:
    """How long ago: 5 s, 3 min, 4 h, 12 d."""
    if seconds < 0.5:
        return "now"
    for size, unit, limit in ((1, "s", 90), (60, "min", 90), (3600, "h", 48), (86400, "d", math.inf)):
        if seconds / size < limit:
            return f"{seconds / size:.0f}{THIN_SPACE}{unit} ago"
    return NOTHING


def iso(unix: float) -> str:
    """RFC 3339 in UTC, to the second."""
    return utc_time(unix).isoformat(timespec="seconds").replace("+00:00", "Z")


def utc(unix: float) -> str:
    """A time for a reader without scripts, zone shown."""
    return utc_time(unix).strftime("%Y-%m-%d %H:%M UTC")


def rule_title(rule: str) -> str:
    """A rule's name as a heading."""
    return RULES.get(rule, rule.replace("_", " ").capitalize())


def family_title(family: str) -> str:
    """A family's name as a heading."""
    return FAMILIES.get(family, family.replace("_", " ").capitalize())
