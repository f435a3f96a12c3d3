from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import math
import struct
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_hooks.jsonable import jsonable
from trainer_hooks.values import NotReadyError, UnusableError, as_float, as_integer, as_step, json_column


class DeviceArray:
    """What the hook asks of a jax array, for the states a test cannot bring about on one CPU device."""

    def __init__(self, ready: bool = True, replicated: bool = True) -> None:
        self.ready = ready
        self.is_fully_replicated = replicated

    def is_deleted(self) -> bool:
        return False

    def is_ready(self) -> bool:
        return self.ready

    def addressable_data(self, index: int) -> DeviceArray:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        assert self.ready, "read before it was ready"
        return np.asarray(2.5)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (3, 3.0),
        (True, 1.0),
        (np.float16(0.1), 0.0999755859375),
        (np.float32(0.1), 0.10000000149011612),
        (np.int64(7), 7.0),
        (ml_dtypes.bfloat16(0.1), 0.10009765625),
        (ml_dtypes.float8_e4m3fn(1.75), 1.75),
        (np.array(2.0), 2.0),
        (np.array([[2.5]]), 2.5),
        (np.array(0.1, ml_dtypes.bfloat16), 0.10009765625),
        (jnp.float32(0.25), 0.25),
        (jnp.ones((), jnp.bfloat16) / 10, 0.10009765625),
        (jnp.array([3], jnp.int32), 3.0),
        (10**400, math.inf),
    ],
)
def test_every_kind_of_number_becomes_the_double_it_stands_for(value: Any, expected: float) -> None:
    if isinstance(value, jax.Array):
        value.block_until_ready()
    result = as_float(value)
    assert type(result) is float
    assert result == expected


@pytest.mark.parametrize(
    "value", ["1.5", b"1", None, 1j, np.complex64(1), [1.0], {}, np.zeros(2), np.zeros(0), object()]
)
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(UnusableError) as caught:
        as_float(value)
    assert caught.value.reason == "refused"


def test_donated_and_deleted_arrays_are_refused_as_such() -> None:
    donated = jnp.ones(())
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    deleted = jnp.ones(())
    deleted.delete()
    for array in (donated, deleted):
        with pytest.raises(UnusableError) as caught:
            as_float(array)
        assert caught.value.reason == "deleted"


def test_a_tracer_is_refused() -> None:
    seen: list[str] = []

    @jax.jit
    def step(x: jax.Array) -> jax.Array:
        with pytest.raises(UnusableError) as caught:
            as_float(x)
        seen.append(caught.value.reason)
        return x

    step(jnp.ones(()))
    assert seen == ["deleted"]


def test_an_array_is_never_waited_for() -> None:
    array = DeviceArray(ready=False)
    with pytest.raises(NotReadyError):
        as_float(array)
    array.ready = True
    assert as_float(array) == 2.5


def test_an_array_that_is_not_replicated_is_refused() -> None:
    with pytest.raises(UnusableError) as caught:
        as_float(DeviceArray(replicated=False))
    assert caught.value.reason == "not replicated"


@given(st.lists(st.floats() | st.none()))
def test_a_column_reads_back_to_the_same_bits(column: list[float | None]) -> None:
    back = json.loads(json.dumps(json_column(column), allow_nan=False))
    names = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    for value, text in zip(column, back, strict=True):
        again = names.get(text, text)
        if value is not None and math.isnan(value):
            assert math.isnan(again)
        else:
            assert value == again if value is None else struct.pack("d", value) == struct.pack("d", again)


def test_steps_are_whole_and_not_negative() -> None:
    assert as_step(np.int32(5)) == as_step(5.0) == as_step(jnp.int32(5).block_until_ready()) == 5
    assert type(as_integer(np.int64(5))) is int
    for bad in (-1, 1.5, "1", None, 2**60, math.nan):
        with pytest.raises(UnusableError):
            as_step(bad)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Model:
    width: int = 8
    dtype: Any = jnp.bfloat16
    colour: Colour = Colour.RED


class Plain:
    def __init__(self) -> None:
        self.rate = 0.1
        self._hidden = 1


class Awkward:
    @property
    def items(self) -> Any:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_any_configuration_becomes_json() -> None:
    config = {
        "model": Model(),
        Colour.RED: np.float32(1.5),
        "path": Path("/data"),
        "dtype": np.dtype("int8"),
        "rates": (1, float("nan"), np.float16("inf")),
        "arguments": argparse.Namespace(x={2, 1}),
        "plain": Plain(),
        "array": np.arange(3),
        "large": np.zeros((500, 500)),
        "text": "a\ud800",
        3: None,
    }
    plain = jsonable(config, 10**6)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["model"] == {"width": 8, "dtype": "bfloat16", "colour": "red"}
    assert plain["red"] == 1.5
    assert plain["path"] == "/data"
    assert plain["dtype"] == "int8"
    assert plain["rates"] == [1, "NaN", "Infinity"]
    assert plain["arguments"] == {"x": [1, 2]}
    assert plain["plain"] == {"rate": 0.1}
    assert plain["array"] == [0, 1, 2]
    assert plain["large"] == "array float64[500, 500]"
    assert plain["text"] == "a\\ud800"
    assert plain["3"] is None


def test_a_hopeless_configuration_still_becomes_something() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless["b"] = endless
    assert "a" in jsonable({"a": Awkward()}, 1000)
    assert json.dumps(jsonable(endless, 10**8))
    assert jsonable("x" * 5000, 1000) == "left out: 5,002 bytes of JSON"
