"""Numbers, times and names as a report shows them. A true minus sign, commas between thousands."""

from __future__ import annotations

import json
import math
from typing import Any

from service.reports.document import Cell, Real, Row

MINUS = "\u2212"
THIN = "\u202f"
NOTHING = "\u2013"
LONGEST = 400
STANDS = {"inside": "✓ inside", "outside": "✗ outside", "cannot tell": "? cannot tell"}
ANSWERS = {"yes": "✗ yes", "no": "✓ no", "cannot tell": "? cannot tell"}
# How many decimals a value and its deviation are written with.
DIGITS = {"nats per token": 4, "nats": 4, "accuracy": 4}


def number(value: Real, digits: int = 4, *, sign: bool = False) -> str:
    """A value with so many decimals; very small and very large ones in powers of ten."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value.replace("-", MINUS).replace("Infinity", "∞")
    if value and (abs(value) < 0.5 * 10.0**-digits or abs(value) >= 1e7):
        if abs(value) < 1e-12:
            value = 0.0
        else:
            mantissa, exponent = f"{value:+.2e}".split("e")
            text = f"{mantissa if sign else mantissa.removeprefix('+')}e{int(exponent)}"
            return text.replace("-", MINUS)
    text = f"{value:+,.{digits}f}" if sign and value else f"{value:,.{digits}f}"
    return text.replace("-", MINUS)


def whole(value: float | None) -> str:
    """A count or a step: 1,413,814, with commas."""
    return NOTHING if value is None else f"{round(value):,}".replace("-", MINUS)


def tokens(value: float | None) -> str:
    """1.23T, 45.6B, 789M, 12.3k: three significant digits."""
    if value is None or not math.isfinite(value):
        return NOTHING
    for scale, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * scale:
            scaled = value / scale
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{digits}f}{suffix}".replace("-", MINUS)
    return f"{value:.0f}".replace("-", MINUS)


def percent(share: Real, digits: int = 1) -> str:
    """A share from 0 to 1."""
    if not isinstance(share, int | float):
        return NOTHING if share is None else str(share)
    if 0 < abs(share) < 0.5 * 10.0 ** (-digits - 2):
        return f"<{10.0**-digits:.{digits}f}{THIN}%"
    return f"{100 * share:.{digits}f}{THIN}%".replace("-", MINUS)


def span(ends: tuple[float, float] | None, *, of: str = "steps") -> str:
    """From the earliest to the latest; one number where both read the same."""
    if ends is None:
        return NOTHING
    low, high = (tokens(end) if of == "tokens" else whole(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def moment(at: str | None) -> str:
    """An RFC 3339 time to the minute."""
    return NOTHING if at is None else f"{at[:10]} {at[11:16]} UTC"


def measured(value: Real, interval: tuple[Real, Real] | None, unit: str) -> str:
    """A judgement's value with its interval and unit."""
    if value is None:
        return NOTHING
    if unit in ("share", "fraction"):
        ends = f" ({percent(interval[0])} to {percent(interval[1])})" if interval is not None else ""
        return percent(value) + ends
    ends = f" ({_judged(interval[0], unit)} to {_judged(interval[1], unit)})" if interval is not None else ""
    return f"{_judged(value, unit)}{ends} {unit}".strip()


def limit(value: Real, unit: str) -> str:
    """A judgement's limit."""
    if value is None:
        return NOTHING
    return percent(value, 2) if unit in ("share", "fraction") else f"{_judged(value, unit, sign=False)} {unit}".strip()


def _judged(value: Real, unit: str, *, sign: bool = True) -> str:
    """Losses and accuracies to four decimals with their sign; anything else in four digits."""
    if not isinstance(value, int | float) or unit in DIGITS:
        return number(value, sign=sign)
    return f"{value:,.4g}".replace("-", MINUS)


def deviation(cell: Cell, row: Row) -> str:
    """Run minus reference ± the half width of its 95 % interval."""
    digits = DIGITS.get(row.unit, 4)
    if cell.deviation is None:
        return NOTHING
    half = "" if cell.half_width is None else f" ± {_fixed(cell.half_width, digits)}"
    return f"{_fixed(cell.deviation, digits, sign=True)}{half}"


def _fixed(value: Real, digits: int, *, sign: bool = False) -> str:
    """To so many decimals, however small."""
    small = isinstance(value, int | float) and abs(value) < 0.5 * 10.0**-digits
    return number(0.0 if small else value, digits, sign=sign)


def stand(cell: Cell) -> str:
    """Where it stands, in a mark and a word."""
    return STANDS[cell.stand]


def short(value: Any) -> str:
    """Whatever a trainer or a person said, as one text of bounded length."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def pairs(table: dict[str, Any]) -> str:
    """A small table in one line, without what is not known."""
    return ", ".join(f"{name} {short(value)}" for name, value in table.items() if value is not None) or NOTHING


def setting(body: dict[str, Any] | None) -> str:
    """What a setting of a rule says."""
    if body is None:
        return "as shipped"
    names = ("tolerance", "minimum_evidence", "enabled", "muted", "muted_until")
    return ", ".join(f"{name.replace('_', ' ')} {body[name]}" for name in names if body.get(name) is not None)


def rule_title(rule: str) -> str:
    """A rule's name as a heading."""
    return rule.replace("_", " ").replace("heldout", "held-out").capitalize()
