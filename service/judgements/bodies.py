"""Judgements as JSON, the form in which they are stored, sent and shown."""

from __future__ import annotations

import math
from typing import Any, cast

from service.detect.judgement import Judgement


def to_body(judgement: Judgement) -> dict[str, Any]:
    """A judgement in JSON types; non-finite numbers become "NaN", "Infinity" and "-Infinity", as on the wire."""
    return {name: plain(value) for name, value in judgement.to_json().items()}


def plain(value: Any) -> Any:
    """A value in JSON types: tuples as lists, numpy scalars as numbers, non-finite numbers as strings.

    Raises:
        TypeError: anything that has no JSON form.
    """
    if value is None or isinstance(value, bool | str | int):
        return value
    if type(value) is float and math.isfinite(value):  # the usual number
        return value
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("list[Any]", value)]
    item = getattr(value, "item", None)
    if item is not None and not isinstance(value, float):
        return plain(item())
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")
