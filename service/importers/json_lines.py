"""JSON lines: one object per line with a step and metrics; nested objects are joined by "/"."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from service.importers.formats import line_format
from service.importers.rows import Account, Row, plain, unix_seconds, whole

NAME = "json_lines"
STEP_KEYS = ("_step", "step", "global_step", "train/global_step", "iteration", "iter")
TIME_KEYS = ("_timestamp", "timestamp", "time")
NOT_METRICS = {*STEP_KEYS, "_runtime", "_wandb"}


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
            account.cut_off(account.lines)
            continue
        step = _step(found) if found is not None else None
        if found is None or step is None or step < 0:
            account.skip(account.lines)
            continue
        stamps = {key: time for key in TIME_KEYS if (time := unix_seconds(found.get(key))) is not None}
        time = next(iter(stamps.values()), None)
        for name, value in flat(found):
            if name not in NOT_METRICS and name not in stamps:
                yield Row(step, name, value, time)


def flat(found: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in an object, their names joined by "/"."""
    for key, value in found.items():
        if isinstance(value, dict):
            yield from flat(cast("dict[str, Any]", value), f"{prefix}{key}/")
        elif (number := plain(value)) is not None:
            yield prefix + key, number


def _object(line: str) -> dict[str, Any] | None:
    try:
        found: Any = _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            found = json.loads(line)  # takes NaN and Infinity, which trackers write
        except (ValueError, RecursionError):
            return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _step(found: dict[str, Any]) -> int | None:
    return next((whole(str(found[key])) for key in STEP_KEYS if found.get(key) is not None), None)


_decode = msgspec.json.Decoder().decode
FORMAT = line_format(NAME, "JSON lines", recognise, read)
