"""Series as JSON, Arrow, CSV and Parquet. The exact forms are made piece by piece, so that long series are streamed."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.series.repository import Overview, Points

MEDIA_TYPES = {
    "json": "application/json",
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
PIECE = 65_536  # points

_encode = msgspec.json.Encoder().encode


def numbers(values: NDArray[np.float64]) -> list[float | str | None]:
    """JSON's form of values: non-finite ones by name."""
    listed: list[float | str | None] = values.tolist()
    for index in np.flatnonzero(~np.isfinite(values)):
        value = values[index]
        listed[index] = "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return listed


def known(values: NDArray[np.float64]) -> list[float | None]:
    """JSON's form of numbers that may be unknown (NaN): null."""
    return [None if value != value else value for value in values.tolist()]


def exact_json(run: str, series: Mapping[str, Points], segments: Mapping[int, str] | None) -> Iterator[bytes]:
    """`segments` (id -> uuid) asks for who wrote each point and whether it counts."""
    yield b'{"run":' + _encode(run) + b',"series":{'
    for place, (name, points) in enumerate(series.items()):
        yield (b"," if place else b"") + _encode(name) + b":{"
        for first, (column, listed) in enumerate(_columns(points, segments).items()):
            yield (b"," if first else b"") + _encode(column) + b":["
            for start in range(0, len(points), PIECE):
                yield (b"," if start else b"") + _encode(listed(slice(start, start + PIECE)))[1:-1]
            yield b"]"
        yield b"}"
    yield b"}}"


def _columns(points: Points, segments: Mapping[int, str] | None) -> dict[str, Callable[[slice], list[Any]]]:
    """Name -> what lists a part of the column."""
    columns: dict[str, Callable[[slice], list[Any]]] = {
        "steps": lambda part: points.steps[part].tolist(),
        "tokens": lambda part: known(points.tokens[part]),
        "values": lambda part: numbers(points.values[part]),
    }
    if segments is not None:
        columns["segments"] = lambda part: [segments[segment] for segment in points.segments[part].tolist()]
        columns["live"] = lambda part: points.live[part].tolist()
    return columns


def overview_json(run: str, series: Mapping[str, Overview]) -> bytes:
    """Buckets in columns; minimum, maximum and mean are null where a bucket holds no finite value."""
    return _encode(
        {
            "run": run,
            "series": {
                name: {
                    "width": overview.width,
                    "steps": overview.steps.tolist(),
                    "tokens": known(overview.tokens),
                    "minimum": known(overview.minimum),
                    "maximum": known(overview.maximum),
                    "mean": known(overview.mean),
                    "first": numbers(overview.first),
                    "last": numbers(overview.last),
                    "count": overview.count.tolist(),
                    "non_finite": overview.non_finite.tolist(),
                }
                for name, overview in series.items()
            },
        }
    )


def exact_csv(series: Mapping[str, Points], segments: Mapping[int, str] | None) -> Iterator[bytes]:
    """One row per point; non-finite values by the names that JSON gives them, unknown tokens empty."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["metric", "step", "tokens", "value", *(("segment", "live") if segments is not None else ())])
    for name, points in series.items():
        for start in range(0, len(points), PIECE):
            part = slice(start, start + PIECE)
            listed = {column: of(part) for column, of in _columns(points, segments).items()}
            if "live" in listed:
                listed["live"] = ["true" if live else "false" for live in listed["live"]]
            rows.writerows(zip(repeat(name), *listed.values(), strict=False))
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


def exact_table(series: Mapping[str, Points], segments: Mapping[int, str] | None) -> Any:
    """Columns metric (dictionary), step, tokens, value, and segment and live if they are asked for."""
    pa = import_module("pyarrow")  # takes half a second: only who asks for Arrow pays

    names, uuids = pa.array(list(series), pa.string()), list((segments or {}).items())
    fields = [("metric", pa.dictionary(pa.uint16(), pa.string()))]
    fields += [("step", pa.int64()), ("tokens", pa.float64()), ("value", pa.float64())]
    if segments is not None:
        fields += [("segment", pa.dictionary(pa.int32(), pa.string())), ("live", pa.bool_())]
    batches: list[Any] = []
    for index, points in enumerate(series.values()):
        metric = pa.DictionaryArray.from_arrays(pa.array(np.full(len(points), index, np.uint16)), names)
        columns: list[Any] = [metric, pa.array(points.steps), pa.array(points.tokens), pa.array(points.values)]
        if segments is not None:
            places = {segment: place for place, (segment, _) in enumerate(uuids)}
            numbered = np.array([places[segment] for segment in points.segments.tolist()], np.int32)
            columns.append(pa.DictionaryArray.from_arrays(pa.array(numbered), pa.array([uuid for _, uuid in uuids])))
            columns.append(pa.array(points.live))
        batches.append(pa.record_batch(columns, schema=pa.schema(fields)))
    return pa.Table.from_batches(batches, schema=pa.schema(fields))


def exact_arrow(series: Mapping[str, Points], segments: Mapping[int, str] | None) -> bytes:
    """An Arrow IPC stream of `exact_table`."""
    pa = import_module("pyarrow")
    table = exact_table(series, segments)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def exact_parquet(series: Mapping[str, Points], segments: Mapping[int, str] | None) -> bytes:
    """A Parquet file of `exact_table`."""
    sink = io.BytesIO()
    import_module("pyarrow.parquet").write_table(exact_table(series, segments), sink, compression="zstd")
    return sink.getvalue()
