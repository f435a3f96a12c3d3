"""What the service answers as pandas frames. pandas is imported by the first frame that is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


def pandas() -> Any:
    """The module.

    Raises:
        ImportError: it is not installed; the message says what to do.
    """
    try:
        return import_module("pandas")
    except ImportError as error:
        raise ImportError("frames need pandas: pip install pandas") from error


def table(items: Sequence[Mapping[str, Any]], index: str | None, times: Sequence[str] = ()) -> Any:
    """A frame of JSON objects, columns `times` as times in UTC."""
    pd = pandas()
    frame = pd.DataFrame(list(items))
    for column in times:
        if column in frame:
            frame[column] = pd.to_datetime(frame[column], utc=True, format="ISO8601")
    return frame.set_index(index) if index is not None and index in frame else frame


def points(series: Mapping[str, Mapping[str, list[Any]]], superseded: bool) -> Any:
    """The frame of a series answer in JSON: metric, step, tokens, value; with `superseded` also segment and live."""
    columns = ("step", "tokens", "value", *(("segment", "live") if superseded else ()))
    types = {"metric": "object", "step": "int64", "tokens": "float64", "value": "float64"}
    made: dict[str, list[Any]] = {"metric": [], **{column: [] for column in columns}}
    for name, found in series.items():
        made["metric"] += [name] * len(found["steps"])
        for column in columns:
            listed = found[column if column == "live" else f"{column.rstrip('s')}s"]
            made[column] += numbers(listed) if column in ("tokens", "value") else listed
    return pandas().DataFrame(made).astype(types)


def numbers(listed: Sequence[Any]) -> list[Any]:
    """JSON's numbers as Python's: "NaN" and infinities by name, null as NaN."""
    return [float("nan") if value is None else float(value) if isinstance(value, str) else value for value in listed]
