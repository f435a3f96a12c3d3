"""CSV, Parquet and Arrow: one row per point, columns metric, step, tokens, value (and segment, live)."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import IO, Any

from service.exporters.run_series import RunSeries
from service.series.formats import exact_csv, exact_table


def write_csv(series: RunSeries, out: IO[bytes]) -> int:
    """Write a CSV file; returns the number of points."""
    count = 0
    segments = series.segments
    for name, points in series.each():
        for place, piece in enumerate(exact_csv({name: points}, segments)):
            out.write(piece if count == 0 or place else piece.split(b"\n", 1)[1])  # the first line names the columns
        count += len(points)
    return count


def write_parquet(series: RunSeries, out: IO[bytes]) -> int:
    """Write a Parquet file, one row group or more for each metric; returns the number of points.

    Numbers have no dictionary: hardly one comes twice, and looking for those that do takes time and memory.
    """
    pq: Any = import_module("pyarrow.parquet")
    return _write(series, out, partial(pq.ParquetWriter, compression="zstd", use_dictionary=["metric", "segment"]))


def write_arrow(series: RunSeries, out: IO[bytes]) -> int:
    """Write an Arrow IPC stream; returns the number of points."""
    pa: Any = import_module("pyarrow")
    return _write(series, out, pa.ipc.new_stream)


def _write(series: RunSeries, out: IO[bytes], opened: Any) -> int:
    count = 0
    segments = series.segments
    with opened(out, exact_table({}, segments).schema) as writer:
        for name, points in series.each():
            writer.write_table(exact_table({name: points}, segments))
            count += len(points)
    return count
