"""A function of (weights, batch), compiled ahead of time once for each shape of batch, its rows spread on devices."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[Any], ...]
Shapes = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
IN_FLIGHT = 2  # batches on the devices at once: one is computed while the one before is read


class Program:
    """Runs `function(weights, *batch)`; every array of a batch and of the result is split by its first axis.

    Compiling is separate from running, so that whatever can fail by itself on one process fails before the vote.
    """

    def __init__(self, function: Callable[..., Any], sharding: Any = None) -> None:
        self._function = function
        self._given = sharding
        self._signature: Any = None
        self._compiled: dict[Shapes, Any] = {}
        self._sharding: Any = None
        self._jitted: Any = None
        self.seconds = 0.0  # spent on compiling, in all
        self.compilations = 0

    def rows_multiple(self, weights: Any) -> int:
        """A batch has to have a multiple of so many rows."""
        return _shards(self._given if self._given is not None else _default_sharding(weights))

    def prepare(self, weights: Any, batches: Iterable[Shapes]) -> None:
        """Compiles for these weights (their shapes and shardings, not their values) and the shapes that are new."""
        leaves, structure = _jax().tree.flatten(weights)
        signature = (structure, tuple(_kind_of(leaf) for leaf in leaves))
        if signature != self._signature:
            sharding = self._given if self._given is not None else _default_sharding(weights)
            self._compiled.clear()
            self._sharding = sharding
            self._jitted = _jax().jit(self._function, out_shardings=_replicated(sharding))
            self._signature = signature
        for shapes in batches:
            if shapes not in self._compiled:
                began = time.perf_counter()
                batch = [_jax().ShapeDtypeStruct(s, d, sharding=self._sharding) for s, d in shapes]
                self._compiled[shapes] = self._jitted.lower(weights, *batch).compile()
                self.compilations += 1
                self.seconds += time.perf_counter() - began

    def run(self, weights: Any, batches: Iterable[Arrays]) -> Iterator[NDArray[Any]]:
        """The results as NumPy arrays, in order. Only shapes that were prepared may come."""
        waiting: deque[Any] = deque()
        for batch in batches:
            waiting.append(self._compiled[shapes_of(batch)](weights, *(self._put(array) for array in batch)))
            if len(waiting) == IN_FLIGHT:
                yield np.asarray(waiting.popleft())
        while waiting:
            yield np.asarray(waiting.popleft())

    def _put(self, array: NDArray[Any]) -> Any:
        """The array on the devices: every process holds all of it and hands over what belongs to its own."""
        return _jax().make_array_from_callback(array.shape, self._sharding, array.__getitem__)


def shapes_of(batch: Sequence[NDArray[Any]]) -> Shapes:
    """Shapes and dtypes of a batch."""
    return tuple((array.shape, array.dtype) for array in batch)


def pad_rows(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """`array` with zeros behind, so that it has so many rows."""
    if len(array) == rows:
        return array
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


def _jax() -> Any:
    """The module, imported when it is needed; its annotations leave much unknown."""
    return import_module("jax")


def _default_sharding(weights: Any) -> Any:
    """Rows over all devices that hold the weights. Raises ValueError where that does not follow from the weights."""
    jax = _jax()
    from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

    found: list[Any] = [leaf.sharding for leaf in jax.tree.leaves(weights) if isinstance(leaf, jax.Array)]
    sharding: Any = max(found, key=lambda s: len(s.device_set), default=SingleDeviceSharding(jax.devices()[0]))
    devices = len(sharding.device_set)
    if isinstance(sharding, NamedSharding) and AxisType.Explicit not in sharding.mesh.axis_types:
        return NamedSharding(sharding.mesh, PartitionSpec(sharding.mesh.axis_names))
    if devices > 1:
        kind = "on a mesh with explicit axes" if isinstance(sharding, NamedSharding) else "without a mesh"
        raise ValueError(f"the weights are sharded {kind}: give sharding=NamedSharding(mesh, PartitionSpec(…))")
    return sharding


def _axes(part: Any) -> tuple[str, ...]:
    """The mesh axes that one entry of a partition spec names."""
    return (part,) if isinstance(part, str) else tuple(part or ())


def _kind_of(leaf: Any) -> tuple[Any, ...]:
    """What a compiled program depends on in one of its weights."""
    return np.shape(leaf), str(getattr(leaf, "dtype", "") or type(leaf).__name__), getattr(leaf, "sharding", None)


def _replicated(sharding: Any) -> Any:
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(sharding.mesh, PartitionSpec()) if isinstance(sharding, NamedSharding) else sharding


def _shards(sharding: Any) -> int:
    """Into how many pieces the first axis is split."""
    from jax.sharding import NamedSharding

    if not isinstance(sharding, NamedSharding) or not sharding.spec:
        return 1
    return math.prod(sharding.mesh.shape[axis] for axis in _axes(sharding.spec[0]))
