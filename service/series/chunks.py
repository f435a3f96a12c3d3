"""How sealed points are packed: pcodec for steps and values, and a summary that answers overviews without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.series.cells import Cells, cells_of
from service.series.packing import compress, decompress_floats, decompress_into, decompress_ints

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CHUNK_POINTS = 8192
SUMMARY_CELLS = 65  # 64, and one more because cells are aligned to the step axis


@dataclass(frozen=True, slots=True)
class PackedChunk:
    """The columns of one chunk row that its points decide."""

    first_step: int
    last_step: int
    points: int
    repeats: bool
    cell: int
    summary: bytes
    steps: bytes
    values: bytes


def pack(steps: Ints, values: Floats) -> Iterator[PackedChunk]:
    """Chunks of points in order of arrival; equal steps keep their order. Every chunk but the last is full."""
    if np.any(steps[1:] < steps[:-1]):
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
    for start in range(0, len(steps), CHUNK_POINTS):
        yield _pack_one(steps[start : start + CHUNK_POINTS], values[start : start + CHUNK_POINTS])


def _pack_one(steps: Ints, values: Floats) -> PackedChunk:
    repeats = bool(np.any(steps[1:] == steps[:-1]))
    cell, summary = (0, b"") if repeats or len(steps) <= 2 * SUMMARY_CELLS else _summarise(steps, values)
    return PackedChunk(
        int(steps[0]),
        int(steps[-1]),
        len(steps),
        repeats,
        cell,
        summary,
        compress(steps),
        compress(values),
    )


def _summarise(steps: Ints, values: Floats) -> tuple[int, bytes]:
    cell = cell_width(int(steps[0]), int(steps[-1]), SUMMARY_CELLS)
    cells = cells_of(steps, values, cell)
    ints = compress(np.concatenate([cells.last_steps, cells.counts, cells.non_finite]))
    floats = np.concatenate([cells.minimum, cells.maximum, cells.first, cells.last, cells.total])
    return cell, len(ints).to_bytes(4, "little") + ints + compress(floats)


def cell_width(first_step: int, last_step: int, most: int) -> int:
    """The smallest power of two so that at most `most` cells of that many steps, aligned at 0, cover the steps."""
    width = 1
    while last_step // width - first_step // width >= most:
        width *= 2
    return width


def unpack_summary(summary: bytes) -> Cells:
    """The cells of one chunk, in step order."""
    size = int.from_bytes(summary[:4], "little")
    last_steps, counts, non_finite = decompress_ints(summary[4 : 4 + size]).reshape(3, -1)
    minimum, maximum, first, last, total = decompress_floats(summary[4 + size :]).reshape(5, -1)
    return Cells(last_steps, counts, non_finite, minimum, maximum, first, last, total)


def unpack(packed: Sequence[tuple[int, bytes, bytes]]) -> tuple[Ints, Floats]:
    """Steps and values of chunks (points, steps, values), one after the other."""
    total = sum(points for points, _, _ in packed)
    steps, values = np.empty(total, np.int64), np.empty(total, np.float64)
    start = 0
    for points, packed_steps, packed_values in packed:
        decompress_into(packed_steps, steps[start : start + points])
        decompress_into(packed_values, values[start : start + points])
        start += points
    return steps, values
