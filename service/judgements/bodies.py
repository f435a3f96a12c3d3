"""Judgements as JSON, the form in which they are stored, sent and shown."""

from __future__ import annotations

import math
from typing import Any, cast

from service.detect.judgement import Judgement

_AS_THEY_ARE = frozenset((type(None), bool, int, str))


def to_body(judgement: Judgement) -> dict[str, Any]:
    """A judgement in JSON types; non-finite numbers become "NaN", "Infinity" and "-Infinity", as on the wire."""
    body = judgement.to_json()
    return {name: value if type(value) in _AS_THEY_ARE else plain(value) for name, value in body.items()}


def plain(value: Any) -> Any:
    """A value in JSON types: tuples as lists, numpy scalars as numbers, non-finite numbers as strings.

    Raises:
        TypeError: anything that has no JSON form.
    """
    kind = cast("type[Any]", type(value))
    if kind in _AS_THEY_ARE or (kind is float and math.isfinite(value)):  # nearly all
        return value
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {str(name): item if type(item) in _AS_THEY_ARE else plain(item) for name, item in items}
    if isinstance(value, str | int):
        return value
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
