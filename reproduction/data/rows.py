"""A Grain data source over rows of tokens in memory."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray


class RowSource:
    """The rows `ids` of `rows` (n, length), as a Grain `RandomAccessDataSource`: record i is `rows[ids[i]]`."""

    def __init__(self, rows: NDArray[np.uint32], ids: NDArray[np.integer[Any]] | None = None) -> None:
        self._rows = rows
        self._ids = np.arange(len(rows)) if ids is None else ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: SupportsIndex) -> NDArray[np.uint32]:
        return self._rows[self._ids[index]]

    def __repr__(self) -> str:  # Grain writes it into its checkpoints and compares it on restore
        return f"RowSource(records={len(self)}, length={self._rows.shape[1]})"
