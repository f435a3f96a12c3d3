"""Times that lines of printed logs begin with."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_STAMP = re.compile(r"\W{0,2}(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")


def leading_time(line: str) -> float | None:
    """Unix seconds of the time a line begins with, None if it begins with none; printed logs name no zone: UTC."""
    match = _STAMP.match(line)
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{match[1]}T{match[2]}.{(match[3] or '0'):0<6}")
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC).timestamp()
