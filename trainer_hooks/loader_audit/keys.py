"""What a row is, and the 64-bit key that it is known by on every host."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.fingerprints import DIGEST_BYTES, row_hashes, snapshot

TOKEN_FIELDS = ("inputs", "input_ids", "tokens")  # of MaxText and Grain's packing, Transformers and OLMo-core, Levanter
Key = str | Callable[[Any], Any] | None


class RowKeys:
    """Turns what a loader yields into one uint64 per row.

    `key` None: the row's content. Of a mapping with tokens under a usual name only these count, of any other mapping,
    named tuple or tuple all fields; a list is a list of rows, which may differ in length. Rows of integers get the hash
    that fingerprints have (docs/wire.md, "Row hash"). A text: the field of that name. A function: what it returns for a
    batch is taken instead of it: an id per row, or anything that content can be taken of. `batched` False: the loader
    yields single rows. Rows that hold nothing but the token `padding` are left out.
    """

    def __init__(self, key: Key = None, batched: bool = True, padding: int | None = None) -> None:
        self._key = key
        self._batched = batched
        self._padding = padding

    def __call__(self, batch: Any) -> NDArray[np.uint64]:
        """The keys of a batch, uint64 (rows,). Raises ValueError or TypeError that says what is no batch of rows."""
        if callable(self._key):
            batch = self._key(batch)
        elif self._key is not None:
            batch = _field(batch, self._key)
        if not self._batched:
            return np.array([_content(_tokens_of(batch))], dtype=np.uint64)
        return self._rows(_tokens_of(batch))

    def _rows(self, batch: Any) -> NDArray[np.uint64]:
        if isinstance(batch, (str, bytes)):
            raise TypeError("the loader yields single texts; say batched=False")
        array = _array(batch)
        if array is not None and array.ndim == 0:
            raise TypeError("the loader yields single values, not batches; say batched=False")
        if array is not None and array.ndim == 2 and array.dtype.kind in "iu" and array.shape[1]:
            if self._padding is not None:
                array = array[(array != self._padding).any(axis=1)]
            return row_hashes(snapshot(array))
        fields = _fields(batch)
        if fields is None:
            rows: Sequence[Any] = cast("Sequence[Any]", batch if array is None else array)
            return np.array([_content(row) for row in rows], dtype=np.uint64)
        columns: list[Any] = [column for column in fields if _length(column) is not None]
        lengths = {_length(column) for column in columns}
        if len(lengths) != 1:
            raise ValueError(f"the fields of a batch have {sorted(map(str, lengths))} rows; name one by key=")
        return np.array([_content(row) for row in zip(*columns, strict=True)], dtype=np.uint64)


def _field(batch: Any, name: str) -> Any:
    if isinstance(batch, Mapping):
        mapping = cast("Mapping[Any, Any]", batch)
        if name in mapping:
            return mapping[name]
        raise ValueError(f"a batch has no field {name!r}, but {', '.join(map(str, mapping))}")
    if not hasattr(batch, name):
        raise ValueError(f"a batch has no field {name!r}: it is a {type(batch).__name__}")
    return getattr(batch, name)


def _tokens_of(batch: Any) -> Any:
    for name in TOKEN_FIELDS:
        if isinstance(batch, Mapping) and name in batch:
            return cast("Mapping[Any, Any]", batch)[name]
    return cast("Any", batch)


def _fields(batch: Any) -> list[Any] | None:
    """The columns of a mapping (in order of name) or tuple; None for a sequence of rows."""
    if isinstance(batch, Mapping):
        mapping = cast("Mapping[Any, Any]", batch)
        return [mapping[name] for name in sorted(mapping, key=str)]
    if isinstance(batch, tuple):
        return list(cast("tuple[Any, ...]", batch))
    if hasattr(batch, "__dict__") and not hasattr(batch, "__array__"):
        return list(cast("dict[str, Any]", vars(batch)).values())
    return None


def _length(column: Any) -> int | None:
    """How many rows a column has; None for what is no column, such as one number for the whole batch."""
    if isinstance(column, (str, bytes)) or not hasattr(column, "__len__") or getattr(column, "shape", (1,)) == ():
        return None
    return len(column)


def _array(batch: Any) -> NDArray[Any] | None:
    """NumPy, jax and torch arrays as NumPy's; None for what is none."""
    return np.asarray(batch) if hasattr(batch, "__array__") else None


def _content(row: Any) -> int:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    _feed(digest, row)
    return int.from_bytes(digest.digest(), "big")


def _feed(digest: Any, value: Any) -> None:
    """Whole numbers in a row go in as fingerprints have them, so that the way they are held makes no difference."""
    if isinstance(value, (str, bytes)):
        digest.update(value.encode() if isinstance(value, str) else value)
    elif isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        for name in sorted(mapping, key=str):
            digest.update(str(name).encode())
            _feed(digest, mapping[name])
    elif isinstance(value, tuple) and not all(isinstance(part, int) for part in cast("tuple[Any, ...]", value)):
        for part in cast("tuple[Any, ...]", value):
            _feed(digest, part)
    else:
        array: NDArray[Any] = np.asarray(cast("Any", value))
        if array.dtype.hasobject or array.dtype.kind in "US":
            for part in array.ravel().tolist() if array.ndim else [array.item()]:
                _feed(digest, part if isinstance(part, (str, bytes)) else repr(part))
        elif array.dtype.kind in "iu":  # a single number is an id, which may need 64 bits
            digest.update(array.astype("<u4" if array.ndim else "<i8").tobytes())
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
