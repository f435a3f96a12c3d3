"""How sealed points are packed: pcodec for steps and values, and a summary that answers overviews without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pcodec import ChunkConfig
from pcodec.standalone import simple_compress, simple_decompress, simple_decompress_into

from service.series.cells import Cells, cells_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CHUNK_POINTS = 8192
SUMMARY_CELLS = 65  # 64, and one more because cells are aligned to the step axis
CONFIG = ChunkConfig(compression_level=4)  # the last level before the time doubles for less than 1 % of the bytes


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
        simple_compress(np.ascontiguousarray(steps), CONFIG),
        simple_compress(np.ascontiguousarray(values), CONFIG),
    )


def _summarise(steps: Ints, values: Floats) -> tuple[int, bytes]:
    cell = cell_width(int(steps[0]), int(steps[-1]), SUMMARY_CELLS)
    cells = cells_of(steps, values, cell)
    ints = simple_compress(np.concatenate([cells.last_steps, cells.counts, cells.non_finite]), CONFIG)
    floats = np.concatenate([cells.minimum, cells.maximum, cells.first, cells.last, cells.total])
    return cell, len(ints).to_bytes(4, "little") + ints + simple_compress(floats, CONFIG)


def cell_width(first_step: int, last_step: int, most: int) -> int:
    """The smallest power of two so that cells of that many steps, aligned at 0, cover the steps in at most `most` cells."""
    width = 1
    while last_step // width - first_step // width >= most:
        width *= 2
    return width


def unpack_summary(summary: bytes) -> Cells:
    """The cells of one chunk, in step order."""
    size = int.from_bytes(summary[:4], "little")
    ints = simple_decompress(summary[4 : 4 + size])
    floats = simple_decompress(summary[4 + size :])
    assert ints is not None and floats is not None
    last_steps, counts, non_finite = ints.reshape(3, -1)
    minimum, maximum, first, last, total = floats.reshape(5, -1)
    return Cells(last_steps, counts, non_finite, minimum, maximum, first, last, total)


def unpack(packed: Sequence[tuple[int, bytes, bytes]]) -> tuple[Ints, Floats]:
    """Steps and values of chunks (points, steps, values), one after the other."""
    total = sum(points for points, _, _ in packed)
    steps, values = np.empty(total, np.int64), np.empty(total, np.float64)
    start = 0
    for points, packed_steps, packed_values in packed:
        simple_decompress_into(packed_steps, steps[start : start + points])
        simple_decompress_into(packed_values, values[start : start + points])
        start += points
    return steps, values
