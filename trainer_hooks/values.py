"""One conversion of whatever a training loop calls a number to a Python float or int.

Device arrays are recognised by their methods, so jax is never imported here. Only ready, fully replicated arrays are
read, through `addressable_data(0)`: a copy to the host, never a JAX computation, a collective or a wait for the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

LARGEST_INTEGER = 2**53 - 1  # beyond it a double, and so JSON in most languages, cannot count


class UnusableError(ValueError):
    """The value is no number, or can no longer be read. `reason` is the key under which it is counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotReadyError(Exception):
    """The device has not computed the value yet."""


class NoScalar:
    """Stands in for an array that is none, so that nobody holds its memory."""

    def __init__(self, shape: object) -> None:
        self.shape = shape


def is_device_array(value: object) -> bool:
    """Whether `value` looks like a `jax.Array`."""
    return hasattr(type(value), "addressable_data")


def detached(values: dict[Any, Any]) -> tuple[dict[Any, Any], bool]:
    """`values` without what the caller may write into later, or what holds more memory than a number.

    Also says whether there are device arrays among them. For the calling thread: never waits.
    """
    found: dict[Any, Any] = {}
    devices = False
    for name, value in values.items():
        found[name] = value
        if type(value) is not float and type(value) is not int:
            if is_device_array(value):
                devices = True
                if getattr(value, "size", 1) != 1:
                    found[name] = NoScalar(value.shape)
            elif isinstance(value, np.ndarray):
                array = cast("NDArray[Any]", value)
                found[name] = array.copy() if array.size == 1 else NoScalar(array.shape)
    return found, devices


def fetch(value: Any) -> NDArray[Any]:
    """The host copy of a fully replicated device array, shape and dtype kept.

    Raises NotReadyError while the device is still computing it, UnusableError when it was deleted or donated, is a
    tracer, or is not fully replicated.
    """
    try:
        if value.is_deleted():
            raise UnusableError("deleted", "a device array was deleted or donated before it could be read")
        if not value.is_fully_replicated:
            raise UnusableError("not replicated", "a device array is not fully replicated, so no process has its value")
        shard = value.addressable_data(0)
        if not shard.is_ready():
            raise NotReadyError
        return np.asarray(shard)
    except (UnusableError, NotReadyError):
        raise
    except Exception as error:
        # Donated between the question and the copy, a tracer, or an array without a shard in this process.
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnusableError("deleted", f"a device array could not be read: {first_line}") from error


def _single(value: Any) -> Any:
    """`value` itself, or the one element of an array."""
    if is_device_array(value):
        if getattr(value, "size", 1) != 1:  # before anything is copied
            raise _no_scalar(value.shape)
        value = fetch(value)
    if isinstance(value, NoScalar):
        raise _no_scalar(value.shape)
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        if array.size != 1:
            raise _no_scalar(array.shape)
        return array.reshape(-1)[0]
    return value


def _no_scalar(shape: object) -> UnusableError:
    return UnusableError("refused", f"an array of shape {shape} is not a scalar")


def as_float(value: Any) -> float:
    """`value` as a float64; NaN and infinities are data and pass.

    Takes Python and NumPy numbers and booleans, float16, bfloat16 and other ml_dtypes scalars, arrays of one element of
    any of these, and jax arrays. Raises UnusableError for anything else (text and complex numbers too), NotReadyError.
    """
    if type(value) is float:
        return value
    value = _single(value)
    if isinstance(value, (str, bytes, bytearray, complex, np.complexfloating)):
        raise UnusableError("refused", f"{value!r:.60} is not a real number")
    return _float(value)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception as error:
        raise UnusableError("refused", f"a value of type {type(value).__name__} is not a number") from error


def as_integer(value: Any) -> int:
    """`value` as an int below 2**53 in size; floats pass where they are whole. Raises as `as_float`."""
    if type(value) is not int:
        value = _single(value)
        number = as_float(value)
        if not number.is_integer():
            raise UnusableError("refused", f"{number!r} is not a whole number")
        value = int(value)
    if abs(value) > LARGEST_INTEGER:
        raise UnusableError("refused", f"{value} is beyond 2**53 - 1")
    return value


def as_step(value: Any) -> int:
    """`value` as a step: a whole number ≥ 0. Raises as `as_float`."""
    step = as_integer(value)
    if step < 0:
        raise UnusableError("refused", f"step {step} is negative")
    return step


def json_column(column: Sequence[float | None]) -> list[float | str | None]:
    """The column as it goes over the wire: "NaN", "Infinity" and "-Infinity" for what JSON has no number for."""
    return [value if value is None or math.isfinite(value) else json_non_finite(value) for value in column]


def json_non_finite(value: float) -> str:
    """The wire's name of a value that is not finite."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
