"""The lab: a corpus, a base checkpoint and evaluations small enough that two CPU cores re-train a run in a minute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reproduction.lab.corpus import DATA, Corpus

BASE = DATA / "base.safetensors"
BASE_STEPS = 1000
ROWS_PER_STEP = 8
BASE_ROWS = BASE_STEPS * ROWS_PER_STEP


def base_rows(corpus: Corpus) -> NDArray[np.uint32]:
    """The rows (BASE_ROWS, length) that the base checkpoint was trained on, once each."""
    return corpus.rows[:BASE_ROWS]


def run_rows(corpus: Corpus, n: int) -> NDArray[np.uint32]:
    """`n` rows that the base checkpoint has not seen; always the same ones, whatever the seed of their order.

    Raises:
        ValueError: the corpus does not have so many.
    """
    left = len(corpus.rows) - BASE_ROWS
    if not 0 < n <= left:
        raise ValueError(f"{n} rows asked for; the lab's corpus has 1 to {left} that the base checkpoint has not seen")
    return corpus.rows[BASE_ROWS : BASE_ROWS + n]
