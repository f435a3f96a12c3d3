"""Any configuration object → plain JSON values, without ever failing."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping, Set
from pathlib import PurePath
from typing import Any, cast

import numpy as np

from trainer_hooks.values import json_non_finite

MAX_DEPTH = 20
MAX_NODES = 20_000  # values in all; a configuration that holds its model must not become an endless walk
MAX_TEXT = 10_000  # characters of one text
MAX_ARRAY = 1_000  # elements of an array that are written out


def jsonable(value: Any, max_bytes: int) -> Any:
    """`value` in terms of dict, list, str, int, float, bool and None; never raises.

    Dataclasses, mappings, named tuples, enums, paths, NumPy scalars and small arrays, argparse namespaces and other
    plain objects become what they hold; dtypes, functions and everything else become text. Non-finite floats become
    "NaN", "Infinity", "-Infinity". Device arrays are described, not read. Past 20 levels or 20,000 values only types
    are named, and instead of more than `max_bytes` of JSON there is a note that says so.
    """
    plain = _Converter().convert(value, 0)
    size = len(json.dumps(plain))
    return plain if size <= max_bytes else f"left out: {size:,} bytes of JSON"


class _Converter:
    def __init__(self) -> None:
        self.nodes = 0

    def convert(self, value: Any, depth: int) -> Any:
        self.nodes += 1
        try:
            if value is None or isinstance(value, bool):
                return value
            if isinstance(value, enum.Enum):
                return self.convert(value.value, depth + 1)
            if isinstance(value, str):
                return _text(value)
            if isinstance(value, int):
                return int(value) if abs(value) < 2**63 else str(value)
            if isinstance(value, float):
                return float(value) if math.isfinite(value) else json_non_finite(value)
            if isinstance(value, PurePath):
                return _text(str(value))
            if depth >= MAX_DEPTH or self.nodes > MAX_NODES:
                return f"<{type(value).__name__}>"
            return self._structure(value, depth + 1)
        except Exception as error:  # a property that raises, a dict that changes meanwhile: the rest is worth having
            return f"<{type(value).__name__}: {type(error).__name__}>"

    def _structure(self, value: Any, depth: int) -> Any:
        if isinstance(value, np.generic):
            return self.convert(value.item(), depth)
        dtype = _dtype_name(value)
        if dtype:
            return dtype
        if isinstance(value, np.ndarray) and value.size <= MAX_ARRAY:
            return self.convert(value.tolist(), depth)
        return self._object(cast("Any", value), depth)

    def _object(self, value: Any, depth: int) -> Any:
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return f"array {value.dtype}{list(value.shape)}"
        if hasattr(value, "__qualname__"):  # classes and functions
            return f"{value.__module__}.{value.__qualname__}"
        if dataclasses.is_dataclass(value):
            return self._mapping({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, depth)
        if hasattr(value, "_asdict"):
            return self._mapping(value._asdict(), depth)
        if isinstance(value, Mapping) or callable(getattr(value, "items", None)):
            return self._mapping(cast("Mapping[Any, Any]", value), depth)
        if isinstance(value, (list, tuple)):
            return [self.convert(item, depth) for item in cast("list[Any]", value)[:MAX_NODES]]
        if isinstance(value, Set):
            return [self.convert(item, depth) for item in sorted(cast("Set[Any]", value), key=str)]
        # Objects without a text of their own, and the namespaces of argparse and types, are what they hold.
        kind = cast("type[Any]", type(value))
        plain = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
        fields: dict[str, Any] | None = getattr(value, "__dict__", None)
        if fields is not None and (plain or kind.__name__ in {"Namespace", "SimpleNamespace"}):
            return self._mapping({name: item for name, item in fields.items() if not name.startswith("_")}, depth)
        return _text(str(value))

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        return {_key(key): self.convert(item, depth) for key, item in list(value.items())[:MAX_NODES]}


def _dtype_name(value: Any) -> str:
    """The name of a dtype in any of its forms: numpy.dtype, numpy.float32, jax.numpy.bfloat16; else empty."""
    mro: tuple[type, ...] = getattr(value, "__mro__", ())
    dtype: Any = np.dtype(value) if np.generic in mro else value
    if callable(value) and np.generic not in mro:
        dtype = getattr(value, "dtype", None)
    return str(cast("Any", dtype).name) if isinstance(dtype, np.dtype) else ""


def _key(key: Any) -> str:
    return _text(str(key.value if isinstance(key, enum.Enum) else key))


def _text(text: str) -> str:
    """Valid Unicode of bounded length: a lone surrogate would make the whole body unreadable."""
    text = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
