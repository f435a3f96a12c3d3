"""Reads numbers back out of a figure, as the browser does."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np


def decode(column: Any) -> np.ndarray:
    """A column of a trace: a typed array, or a plain list."""
    if isinstance(column, dict):
        assert column["dtype"] == "f8"
        return np.frombuffer(base64.b64decode(column["bdata"]), "<f8")
    return np.asarray(column, np.float64)


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    """The trace of that name; of several the last, which is drawn on top."""
    found = [trace for trace in figure["data"] if trace.get("name") == name]
    assert found, f"no trace {name!r} among {[t.get('name') for t in figure['data']]}"
    return found[-1]


def shapes(figure: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The shapes of that name."""
    return [shape for shape in figure["layout"]["shapes"] if shape.get("name") == name]
