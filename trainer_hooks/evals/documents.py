"""Held-out text as rows of one document each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.evals.shapes import MULTIPLE, padded_lengths, rows_of, shape_of

Batch = dict[str, NDArray[Any]]
"""`tokens` (rows, length) int32 and `mask` (rows, length) bool: which tokens are text, and not padding."""


def documents(
    tokens: Any,
    *,
    end: int,
    length: int = 8192,
    batch_tokens: int = 65_536,
    shapes: int = 4,
    length_multiple: int = MULTIPLE,
    pad: int = 0,
) -> list[Batch]:
    """Cuts a stream of tokens into documents, one a row, padded on the right to few lengths.

    As OLMo-core's `NumpyPaddedFSLDataset`: a document ends with its `end` token, which belongs to it; it is cut off
    after `length` tokens; what follows the last `end` of the stream is left out. There a row is padded to `length`
    always; the loss is the same.

    Args:
        tokens: integers (n,), such as `np.fromfile(path, np.uint32)` of OLMo's headerless files.
        end: the end-of-text token, 100257 for OLMo 3.
        length: the longest row.
        batch_tokens: about how many tokens a batch has; rows of one shape come in batches of equal size.
        shapes: how many different lengths there may be.
        length_multiple: of which each of them is a multiple.

    Raises:
        ValueError: there is no whole document, or `tokens` are no integers.
    """
    stream = np.asarray(tokens)
    if stream.ndim != 1 or stream.dtype.kind not in "ui":
        raise ValueError(f"documents needs integers (n,), not {stream.dtype}{list(stream.shape)}")
    ends = np.flatnonzero(stream == end) + 1
    if not ends.size:
        raise ValueError(f"no document ends among the {stream.size:,} tokens: the end-of-text token {end} is not there")
    starts = np.concatenate([[0], ends[:-1]])
    sizes = np.minimum(ends - starts, length)
    edges = padded_lengths(sizes, shapes, length_multiple)
    which = shape_of(sizes, edges)
    batches: list[Batch] = []
    for index, edge in enumerate(edges):
        edge = min(edge, length)
        rows = np.flatnonzero(which == index)
        rows = rows[np.argsort(sizes[rows], kind="stable")]
        size = rows_of(edge, batch_tokens, len(rows))
        for first in range(0, len(rows), size):
            chosen = rows[first : first + size]
            batch = np.full((size, edge), pad, np.int32)
            mask = np.zeros((size, edge), np.bool_)
            for place, row in enumerate(chosen):
                batch[place, : sizes[row]] = stream[starts[row] : starts[row] + sizes[row]]
                mask[place, : sizes[row]] = True
            batches.append({"tokens": batch, "mask": mask})
    return batches
