"""Few shapes for rows of many lengths: each shape is one compilation, and padding is work for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MULTIPLE = 128  # of a padded length: attention kernels of accelerators work in blocks of it, and AI2 pads so too


def padded_lengths(lengths: Sequence[int] | NDArray[np.int64], shapes: int, multiple: int = MULTIPLE) -> list[int]:
    """At most `shapes` lengths, ascending, such that rows padded to the next of them have the fewest tokens in all.

    Every length is a multiple of `multiple`; the last holds the longest row. Exact, by dynamic programming over the
    distinct multiples.
    """
    if shapes < 1 or multiple < 1:
        raise ValueError(f"shapes and the multiple of a length must be at least 1, not {shapes} and {multiple}")
    rounded = -(-np.maximum(np.asarray(lengths, np.int64), 1) // multiple) * multiple
    edges, counts = np.unique(rounded, return_counts=True)
    if not edges.size:
        return []
    total = np.concatenate([[0], np.cumsum(counts)])
    # cost[j]: fewest tokens for the first j distinct lengths; the last of them is an edge.
    cost = np.concatenate([[0.0], edges * total[1:].astype(np.float64)])
    cuts: list[NDArray[np.int64]] = [np.zeros(edges.size + 1, np.int64)]
    for _ in range(min(shapes, edges.size) - 1):
        choices = cost[None, :-1] + edges[:, None] * (total[1:, None] - total[None, :-1])
        choices[np.triu_indices(edges.size, 1)] = np.inf  # the cut lies before the edge
        best = choices.argmin(axis=1)
        cuts.append(np.concatenate([[0], best]))
        cost = np.concatenate([[0.0], choices[np.arange(edges.size), best]])
    found: list[int] = []
    end = int(edges.size)
    for cut in reversed(cuts):
        if end:
            found.append(int(edges[end - 1]))
            end = int(cut[end])
    return found[::-1]


def shape_of(lengths: Sequence[int] | NDArray[np.int64], padded: Sequence[int]) -> NDArray[np.int64]:
    """For each length the index of the smallest of `padded` (ascending) that holds it."""
    return np.searchsorted(np.asarray(padded), np.asarray(lengths), side="left").astype(np.int64)


def rows_of(length: int, tokens: int, available: int, multiple: int = 1) -> int:
    """Rows in one batch of `length`: about `tokens` tokens, no more than `available` rows need, a multiple."""
    wanted = max(tokens // length // multiple, 1) * multiple
    return min(wanted, -(-available // multiple) * multiple)
