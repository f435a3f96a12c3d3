"""How numbers and times look in answers."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated

from pydantic import PlainSerializer, WithJsonSchema

EARLIEST = datetime.min.replace(tzinfo=UTC).timestamp()
LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def utc_time(seconds: float) -> datetime:
    """Unix seconds as a time in UTC; what a broken clock sent stops at the first and last year that can be written."""
    return datetime.fromtimestamp(min(max(seconds, EARLIEST), LATEST), UTC)


def rfc3339(seconds: float) -> str:
    """Unix seconds as an RFC 3339 time in UTC, to the millisecond."""
    return utc_time(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# Unix seconds inside, RFC 3339 in UTC outside.
Time = Annotated[
    float, PlainSerializer(rfc3339), WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization")
]
# A float64; NaN and infinities are the strings "NaN", "Infinity", "-Infinity".
Number = Annotated[
    float,
    PlainSerializer(_number),
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
        mode="serialization",
    ),
]
