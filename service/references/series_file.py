"""Reads a bundle's series: rows of (step, metric, value, segment), raw, overlaps kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from service.references.columns import COLUMNS, BundleError, Curve, ParquetCurves

Curves = Mapping[str, Mapping[str, Curve]]  # segment -> metric -> curve; segments in order of first appearance


def read_series(name: str, content: bytes) -> Curves:
    """The curves of one file, `name` is its path in the bundle (`….csv` or `….parquet`).

    Raises:
        BundleError: columns are missing, a cell is no number, or a point is given twice.
    """
    if name.endswith(".parquet"):
        return ParquetCurves(name, content)
    points: dict[str, dict[str, dict[int, float]]] = {}
    for where, row in read_table(name, content, COLUMNS):
        metric, segment = str(row["metric"] or "").strip(), str(row["segment"] or "").strip()
        if not metric or not segment:
            raise BundleError(f"{where}: metric and segment must not be empty")
        step, value = _step(where, row["step"]), _value(where, row["value"])
        curve = points.setdefault(segment, {}).setdefault(metric, {})
        if step in curve:
            raise BundleError(f"{where}: step {step} of {metric} is given twice in segment {segment}")
        curve[step] = value
    if not points:
        raise BundleError(f"{name}: holds no points")
    return {
        segment: {metric: _curve(values) for metric, values in metrics.items()} for segment, metrics in points.items()
    }


def read_table(name: str, content: bytes, required: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    """Rows of a CSV file as (where, {column: text}); `where` names file and line.

    Raises:
        BundleError: not UTF-8, a required column is missing, or a line has too few or too many cells.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BundleError(f"{name}: not UTF-8 text (byte {error.start})") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [column for column in required if column not in (reader.fieldnames or ())]
    if missing:
        raise BundleError(f"{name} line 1: no column {missing[0]!r}; the first line must name {', '.join(required)}")
    rows: list[tuple[str, dict[str, str]]] = []
    try:
        for row in reader:
            where = f"{name} line {reader.line_num}"
            if None in row or None in row.values():
                raise BundleError(f"{where}: {len(reader.fieldnames or ())} cells expected")
            rows.append((where, row))
    except csv.Error as error:
        raise BundleError(f"{name} line {reader.line_num}: {error}") from error
    return rows


def _step(where: str, cell: Any) -> int:
    try:
        number = float(cell)
        step = int(number)
    except (TypeError, ValueError, OverflowError):
        raise BundleError(f"{where}: step {cell!r} is no whole number") from None
    if step != number or step < 0:
        raise BundleError(f"{where}: step {cell!r} is no whole number from 0 up")
    return step


def _value(where: str, cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        raise BundleError(f"{where}: value {cell!r} is no number") from None


def _curve(points: dict[int, float]) -> Curve:
    steps = np.fromiter(points, np.int64, len(points))
    values = np.fromiter(points.values(), np.float64, len(points))
    order = np.argsort(steps)
    return Curve(steps[order], values[order])


__all__ = ["BundleError", "Curve", "Curves", "read_series", "read_table"]
