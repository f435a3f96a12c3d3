"""JSON lines: one object per line with a step and metrics; nested objects are joined by "/"."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from service.importers.rows import Account, Row, number, whole

NAME = "json_lines"
STEP_KEYS = ("_step", "step", "global_step", "train/global_step", "iteration", "iter")
TIME_KEYS = ("_timestamp", "timestamp", "time")
NOT_METRICS = {*STEP_KEYS, *TIME_KEYS, "_runtime", "_wandb"}


def recognise(head: Sequence[str]) -> str | None:
    """Why these first lines are JSON lines, None if they are not."""
    for line in head:
        if line.strip():
            found = _object(line)
            if found is not None and _step(found) is not None:
                return "JSON objects with a step, one per line"
    return None


def read(lines: Iterator[str], account: Account) -> Iterator[Row]:
    """Rows of the objects, in their order."""
    for line in lines:
        account.lines += 1
        if not line.strip():
            continue
        found = _object(line)
        if found is None and not line.endswith("\n"):
            account.truncated += 1
            continue
        step = _step(found) if found is not None else None
        if found is None or step is None:
            account.skip(account.lines)
            continue
        time = next((t for t in (_float(found.get(key)) for key in TIME_KEYS) if t is not None), None)
        for name, value in _flat(found, ""):
            if name not in NOT_METRICS:
                yield Row(step, name, value, time)


def _object(line: str) -> dict[str, Any] | None:
    try:
        found: Any = json.loads(line)  # takes NaN and Infinity, which trackers write
    except ValueError:
        return None
    return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _step(found: dict[str, Any]) -> int | None:
    return next((whole(str(found[key])) for key in STEP_KEYS if found.get(key) is not None), None)


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    return number(value) if isinstance(value, str) else float(value) if isinstance(value, int | float) else None


def _flat(found: dict[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")  # pyright: ignore[reportUnknownArgumentType]
        elif (plain := _float(value)) is not None:
            yield prefix + key, plain
