"""Writes reference bundles: series as Parquet, one metric of one segment at a time, and what describes them."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from service.detect.inputs import Floats, Ints, Series
from service.references.archive import bundle_files
from service.references.bundle import LOGGED_NOTHING
from service.references.data_order import ExpectedRows
from service.references.description import Description
from service.references.estimate import judged, live

GROUP_ROWS = 1_000_000
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # so that the same bundle gives the same archive

Column = tuple[str, Ints, Floats]  # metric, steps, values


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """One launch of a run to be written. `read` gives its metrics, each with steps in any order; `launched` is in unix
    seconds, None where not known."""

    name: str
    launched: float | None
    note: str
    read: Callable[[], Iterable[Column]]


@dataclass(slots=True)
class Written:
    """What a series file holds: its metrics and their points, the last step of each segment and of all, and the losses
    as they are live (the later launch wins) by step, tokens left out."""

    points: dict[str, int] = field(default_factory=dict[str, int])
    last_steps: dict[str, int] = field(default_factory=dict[str, int])
    losses: dict[str, tuple[Ints, Floats]] = field(default_factory=dict[str, tuple[Ints, Floats]])

    @property
    def last_step(self) -> int:
        """The highest step; 0 if nothing was written."""
        return max(self.last_steps.values(), default=0)

    def series(self, tokens_per_step: int, token_offset: float) -> dict[str, Series]:
        """The losses on the project's token axis."""
        return {
            metric: Series(steps, token_offset + steps.astype(np.float64) * tokens_per_step, values)
            for metric, (steps, values) in self.losses.items()
        }


def write_series(path: Path, segments: Sequence[SourceSegment]) -> Written:
    """Write the series of one run, segments in order of launch. Segments without points leave no trace in the file.

    Where a segment gives a step of a metric twice, the value that came later counts.
    """
    pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    name = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("step", pa.int64()), ("metric", name), ("value", pa.float64()), ("segment", name)])
    path.parent.mkdir(parents=True, exist_ok=True)
    written = Written()
    parts: dict[str, list[tuple[Ints, Floats]]] = {}
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=["metric", "segment"],
        column_encoding={"step": "DELTA_BINARY_PACKED", "value": "BYTE_STREAM_SPLIT"},
    ) as writer:
        for segment in segments:
            for metric, steps, values in segment.read():
                if not len(steps):
                    continue
                steps, values = live([(steps, values)])
                for start in range(0, len(steps), GROUP_ROWS):
                    part = slice(start, start + GROUP_ROWS)
                    size = len(steps[part])
                    columns = [
                        steps[part],
                        _repeated(pa, metric, size),
                        values[part],
                        _repeated(pa, segment.name, size),
                    ]
                    writer.write_table(pa.table(columns, schema=schema), row_group_size=GROUP_ROWS)
                written.points[metric] = written.points.get(metric, 0) + len(steps)
                written.last_steps[segment.name] = max(written.last_steps.get(segment.name, 0), int(steps[-1]))
                if judged(metric):
                    parts.setdefault(metric, []).append((steps, values))
    written.losses = {metric: live(pieces) for metric, pieces in parts.items()}
    return written


def write_segments(path: Path, stages: Mapping[str, Sequence[SourceSegment]], written: Mapping[str, Written]) -> None:
    """Write segments.csv: every launch, also those that logged nothing; launch times only of stages that know all."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["stage", "segment", "launched", "final_step", "note"])
    for stage, segments in stages.items():
        known = all(segment.launched is not None for segment in segments)
        for segment in segments:
            last = written[stage].last_steps.get(segment.name) if stage in written else None
            launched = _time(segment.launched) if known and segment.launched is not None else ""
            note = segment.note if last is not None else f"{segment.note}; {LOGGED_NOTHING}".lstrip("; ")
            rows.writerow([stage, segment.name, launched, "" if last is None else last, note])
    path.write_text(text.getvalue(), encoding="utf-8", newline="")


def write_description(folder: Path, description: Description) -> None:
    """Write reference.toml, and schedule.toml and order.json where there is what they say."""
    content = description.model_dump(mode="json", exclude_none=True)
    schedule = content.pop("schedule", [])
    content.pop("silent", None)  # they stand in segments.csv
    orders = content.pop("data_order", {})
    content = {key: value for key, value in content.items() if value not in ({}, [])}
    (folder / "reference.toml").write_text(_toml(content), encoding="utf-8")
    if schedule:
        (folder / "schedule.toml").write_text(_toml({"pieces": schedule}), encoding="utf-8")
    if orders:
        (folder / "order.json").write_text(json.dumps(orders, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_expected(folder: Path, expected: Sequence[ExpectedRows]) -> None:
    """Write the rows that stages are expected to be read with."""
    for one in expected:
        path = folder / ("rows.bin" if len(expected) == 1 else f"rows/{one.stage}.bin")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(one.to_bytes())


def write_archive(folder: Path, target: Path) -> Path:
    """Zip a bundle as one `.pacenote` file; the same bundle gives the same bytes. Returns `target`.

    Raises:
        BundleError: the folder is no bundle that could be read again.
        OSError: it cannot be written.
    """
    files = bundle_files(folder)
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(name, ZIP_DATE)
                entry.compress_type = zipfile.ZIP_STORED if name.endswith(".parquet") else zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, files[name])
        new.replace(target)
    finally:
        with suppress(OSError):  # where nothing can be written nothing was
            new.unlink()
    return target


class NewFolder:
    """A folder that appears under its name only once everything in it is written. A context manager."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f".{target.name}.new")

    def __enter__(self) -> Path:
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        return self.path

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            self.path.rename(self.target)
        else:
            shutil.rmtree(self.path, ignore_errors=True)


def columns_of(points: Mapping[int, Mapping[str, float]]) -> Iterator[Column]:
    """Columns of points that are held as step -> metric -> value."""
    by_metric: dict[str, tuple[list[int], list[float]]] = {}
    for step, values in points.items():
        for metric, value in values.items():
            steps, listed = by_metric.setdefault(metric, ([], []))
            steps.append(step)
            listed.append(value)
    for metric, (steps, listed) in by_metric.items():
        yield metric, np.array(steps, np.int64), np.array(listed, np.float64)


def _repeated(pa: Any, text: str, size: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array([text]))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _toml(content: Mapping[str, Any]) -> str:
    return import_module("tomlkit").dumps(content)
