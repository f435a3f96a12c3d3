"""Reads a bundle's Parquet series column by column, one metric of one segment at a time, so that 10^8 points fit."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("step", "metric", "value", "segment")


class BundleError(ValueError):
    """A bundle cannot be used; the message is one line that names the file and, where there is one, the line."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of one segment, by step: `steps` int64 (n,) ascending, `values` float64 (n,)."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


Groups = dict[str, dict[str, list[int]]]  # segment -> metric -> its row groups


class ParquetCurves(Mapping[str, Mapping[str, Curve]]):
    """segment -> metric -> curve, decoded when asked for. Every row is checked once, at construction.

    That is cheap where each row group holds one metric of one segment, as Pacenote writes them.

    Raises:
        BundleError: no Parquet file, columns are missing, a cell is no number, or a point is given twice.
    """

    def __init__(self, name: str, content: bytes) -> None:
        self._name = name
        pq: Any = import_module("pyarrow.parquet")  # has no types
        try:
            self._file: Any = pq.ParquetFile(io.BytesIO(content))
            present = set(self._file.schema_arrow.names)
        except (ValueError, OSError) as error:  # pyarrow's errors are kinds of these
            raise self._unreadable(error) from error
        if not present.issuperset(COLUMNS):
            raise BundleError(f"{name}: no Parquet file with columns {', '.join(COLUMNS)} (it has {sorted(present)})")
        sizes = [self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int).tolist()
        self._groups: Groups = {}
        for group in range(len(sizes)):
            for segment, metric in self._decode(group):
                self._groups.setdefault(segment, {}).setdefault(metric, []).append(group)
        if not self._groups:
            raise BundleError(f"{name}: holds no points")
        self._held: tuple[int, dict[tuple[str, str], Curve]] | None = None
        for segment, metrics in self._groups.items():
            for metric in metrics:
                self.curve(segment, metric)

    def __getitem__(self, segment: str) -> Mapping[str, Curve]:
        return _Metrics(self, segment, list(self._groups[segment]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def curve(self, segment: str, metric: str) -> Curve:
        """One metric of one segment.

        Raises:
            BundleError: a point is given twice.
        """
        parts = [self._group(group)[segment, metric] for group in self._groups[segment][metric]]
        steps = np.concatenate([part.steps for part in parts])
        values = np.concatenate([part.values for part in parts])
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        twice = np.flatnonzero(steps[1:] == steps[:-1])
        if len(twice):
            step = int(steps[twice[0]])
            raise BundleError(f"{self._name}: step {step} of {metric} is given twice in segment {segment}")
        return Curve(steps, values)

    def _group(self, group: int) -> dict[tuple[str, str], Curve]:
        """The row group, out of memory if it was the last one asked for."""
        if self._held is None or self._held[0] != group:
            self._held = (group, self._decode(group))
        return self._held[1]

    def _decode(self, group: int) -> dict[tuple[str, str], Curve]:
        """(segment, metric) -> its rows in one row group, in the file's order."""
        try:
            table: Any = self._file.read_row_group(group, columns=list(COLUMNS))
        except (ValueError, OSError) as error:
            raise self._unreadable(error) from error
        segments, segment_of = self._names(group, table, "segment")
        metrics, metric_of = self._names(group, table, "metric")
        steps, values = self._steps(group, table), self._values(group, table)
        key = segment_of.astype(np.int64) * len(metrics) + metric_of
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.empty(0, int)
        found: dict[tuple[str, str], Curve] = {}
        for rows in np.split(order, starts[1:]):
            if len(rows):
                name = segments[int(segment_of[rows[0]])], metrics[int(metric_of[rows[0]])]
                found[name] = Curve(steps[rows], values[rows])
        return found

    def _names(self, group: int, table: Any, column: str) -> tuple[list[str], NDArray[np.int64]]:
        cells: list[Any] = [None]
        encoded: Any = table.column(column).combine_chunks()
        if not hasattr(encoded, "dictionary"):
            encoded = encoded.dictionary_encode()
        indices = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        cells = [str(cell or "").strip() for cell in encoded.dictionary.to_pylist()]
        empty = np.flatnonzero((indices < 0) | np.isin(indices, [i for i, cell in enumerate(cells) if not cell]))
        if len(empty):
            raise BundleError(f"{self._row(group, empty[0])}: metric and segment must not be empty")
        return cells, indices

    def _steps(self, group: int, table: Any) -> NDArray[np.int64]:
        numbers = self._numbers(group, table, "step")
        wrong = np.flatnonzero(~((numbers >= 0) & (numbers == np.floor(numbers)) & (numbers < 2.0**62)))
        if len(wrong):
            cell = table.column("step")[int(wrong[0])].as_py()
            raise BundleError(f"{self._row(group, wrong[0])}: step {cell!r} is no whole number from 0 up")
        return numbers.astype(np.int64)

    def _values(self, group: int, table: Any) -> NDArray[np.float64]:
        return self._numbers(group, table, "value").astype(np.float64)

    def _numbers(self, group: int, table: Any, column: str) -> NDArray[Any]:
        """A column as numbers: whole ones as they are, all others as float64 (text too)."""
        cells: Any = table.column(column).combine_chunks()
        if cells.null_count:
            first = next(place for place, cell in enumerate(cells.to_pylist()) if cell is None)
            raise BundleError(f"{self._row(group, first)}: {column} None is no number")
        array: NDArray[Any] = cells.to_numpy(zero_copy_only=False)
        if array.dtype.kind in "iuf":
            return array
        listed = np.empty(len(array))
        for place, cell in enumerate(cells.to_pylist()):
            try:
                listed[place] = float(cell)
            except (TypeError, ValueError):
                raise BundleError(f"{self._row(group, place)}: {column} {cell!r} is no number") from None
        return listed

    def _row(self, group: int, place: int | np.intp) -> str:
        return f"{self._name} row {self._starts[group] + int(place) + 1}"

    def _unreadable(self, error: Exception) -> BundleError:
        reason = str(error).splitlines()[0]
        return BundleError(f"{self._name}: no Parquet file with columns {', '.join(COLUMNS)} ({reason})")


class _Metrics(Mapping[str, Curve]):
    def __init__(self, curves: ParquetCurves, segment: str, metrics: list[str]) -> None:
        self._curves, self._segment, self._metrics = curves, segment, metrics

    def __getitem__(self, metric: str) -> Curve:
        if metric not in self._metrics:
            raise KeyError(metric)
        return self._curves.curve(self._segment, metric)

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)
