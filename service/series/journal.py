"""The journal's payload: one batch as it came, all its metrics in one matrix, ready for numpy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

TIME, TOKENS = 0, -1  # the axes are series like any other, with reserved numbers
AXES = {"axis/time": TIME, "axis/tokens": TOKENS}  # unix seconds; tokens within the stage, where they were given

Points = tuple[Ints, Floats]  # steps (n,), values (n,)
Lane = tuple[int, int | None, int]  # segment, weights' segment, metric


class Payload(msgspec.Struct, array_like=True, frozen=True):
    """`metrics` are ids (m,); `steps` int64 (n,); `values` float64 (m, n); `present` bool (m, n) packed to bits, None
    if all are; `weights` int64 (n,), the segment whose weights were evaluated, 0 if unknown, None if all are."""

    metrics: list[int]
    steps: bytes
    values: bytes
    present: bytes | None = None
    weights: bytes | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Payload)


def encode(payload: Payload) -> bytes:
    """The bytes that the journal keeps."""
    return _encoder.encode(payload)


def decode(rows: Iterable[tuple[int, bytes]], wanted: Collection[int] | None = None) -> dict[Lane, Points]:
    """Points of journal rows (segment id, payload), in order of arrival: lane -> steps (n,), values (n,).

    `wanted` are metric ids, None for all.
    """
    pieces: dict[Lane, list[Points]] = {}
    for block in _blocks(rows):
        for row, metric in enumerate(block.metrics):
            if wanted is None or metric in wanted:
                _split(block, row, metric, pieces)
    return {lane: join_points(parts) for lane, parts in pieces.items()}


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows that came one after another from one segment, with the same metrics."""

    segment_id: int
    metrics: list[int]
    steps: Ints
    values: Floats  # (metrics, steps)
    present: NDArray[np.bool_] | None
    weights: Ints | None


def _blocks(rows: Iterable[tuple[int, bytes]]) -> Iterable[_Block]:
    """Neighbouring rows that look the same are joined: a live run sends thousands of batches of one step."""
    open_rows: list[Payload] = []
    key: tuple[int, list[int], bool, bool] | None = None
    for segment_id, data in rows:
        payload = _decoder.decode(data)
        this = (segment_id, payload.metrics, payload.present is None, payload.weights is None)
        if key is not None and this != key:
            yield _block(key[0], open_rows)
            open_rows = []
        key = this
        open_rows.append(payload)
    if key is not None:
        yield _block(key[0], open_rows)


def _block(segment_id: int, rows: list[Payload]) -> _Block:
    metrics = rows[0].metrics
    shape = (len(metrics), -1)
    masks = [
        np.unpackbits(np.frombuffer(row.present, np.uint8), count=len(row.values) // 8).view(np.bool_).reshape(shape)
        for row in rows
        if row.present is not None
    ]
    weights = [np.frombuffer(row.weights, np.int64) for row in rows if row.weights is not None]
    return _Block(
        segment_id,
        metrics,
        np.concatenate([np.frombuffer(row.steps, np.int64) for row in rows]),
        np.concatenate([np.frombuffer(row.values, np.float64).reshape(shape) for row in rows], axis=1),
        np.concatenate(masks, axis=1) if masks else None,
        np.concatenate(weights) if weights else None,
    )


def _split(block: _Block, row: int, metric: int, pieces: dict[Lane, list[Points]]) -> None:
    """Sort one metric of a block into its lanes."""
    steps, values, weights = block.steps, block.values[row], block.weights
    if block.present is not None and not block.present[row].all():
        here = block.present[row]
        steps, values, weights = steps[here], values[here], None if weights is None else weights[here]
    if weights is None:
        _add(pieces, (block.segment_id, None, metric), steps, values)
        return
    for weight in np.unique(weights):
        mine = weights == weight
        _add(pieces, (block.segment_id, int(weight) or None, metric), steps[mine], values[mine])


def _add(pieces: dict[Lane, list[Points]], lane: Lane, steps: Ints, values: Floats) -> None:
    if len(steps):
        pieces.setdefault(lane, []).append((steps, values))


def join_points(parts: Sequence[Points]) -> Points:
    """Points of one lane that came one after another."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([steps for steps, _ in parts]), np.concatenate([values for _, values in parts])
