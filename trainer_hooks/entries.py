"""What the calls of a `Run` leave in the queues for the writing thread."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.values import UnusableError, as_float, fetch, is_device_array

MAX_ITEMS = 10_000_000  # of one task at one step, as the service takes them

Scalars = tuple[Any, dict[Any, Any], Any, Any, Any, float]
"""A `log` call: step, values, tokens, weights_segment, eval_sets, unix seconds. A tuple: making one costs the least."""

Rows = tuple[Any, NDArray[np.uint32], int]
"""A `log_rows` call: step, a private copy of the rows, host."""


@dataclass(frozen=True, slots=True)
class Items:
    """A `log_items` call; `correct` are the packed results, or a device array."""

    step: Any
    task: str
    correct: Any


@dataclass(frozen=True, slots=True)
class Packed:
    """Results of `n` items as base64 of their bits, the first item in the lowest bit of the first byte."""

    n: int
    bits: str


@dataclass(frozen=True, slots=True)
class Event:
    """An `event` call; `value` is plain JSON."""

    step: Any
    kind: str
    value: Any
    at: float


Entry = Scalars | Items | Event


def packed(value: Any) -> Packed:
    """Per-item results, bool (items,), packed. Raises UnusableError or NotReadyError."""
    if is_device_array(value) and (len(value.shape) != 1 or value.shape[0] > MAX_ITEMS):
        raise UnusableError("refused", f"results must be booleans (items,), not {value.shape}")
    array = fetch(value) if is_device_array(value) else np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "bui" or not 0 < array.size <= MAX_ITEMS:
        raise UnusableError("refused", f"results must be booleans (items,), not {array.dtype}{list(array.shape)}")
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise UnusableError("refused", "results must be booleans, or 0 and 1")
    bits = np.packbits(array.astype(np.bool_), bitorder="little")
    return Packed(array.size, base64.b64encode(bits.tobytes()).decode())


def as_tokens(value: Any) -> float | int | None:
    """Cumulative tokens ≥ 0, or None for none. Raises UnusableError or NotReadyError."""
    if value is None:
        return None
    number = value if type(value) is int else as_float(value)
    if not 0 <= number < 2**63:
        raise UnusableError("refused", f"tokens are {number}")
    return int(number) if number == int(number) else number
