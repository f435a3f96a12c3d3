"""An installed reference as a bundle again: every point, superseded ones too, under the segments they came in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from service.database.models import Reference, Segment
from service.fingerprints.repository import FingerprintRepository
from service.references.bundle import load_bundle
from service.references.data_order import ExpectedRows, expected_rows
from service.references.describe import description
from service.references.description import Description
from service.references.repository import ReferenceRepository
from service.references.shipped import shipped_bundles
from service.references.writing import (
    Column,
    NewFolder,
    SourceSegment,
    Written,
    write_archive,
    write_description,
    write_expected,
    write_segments,
    write_series,
)
from service.runs.repository import RunRepository
from service.series.repository import SeriesRepository

ORDER_ONLY = 1e6  # a `started_at` before this (unix seconds) stands for an order, not for a time


def export_reference(session: Session, reference: Reference, target: Path) -> Path:
    """Write a reference as one `.pacenote` file; returns its path.

    A shipped bundle is written as it was shipped. What is read again has the digest it had.

    Raises:
        OSError: it cannot be written.
    """
    for folder in shipped_bundles():
        shipped = load_bundle(folder)
        if reference.digest in (shipped.digest, shipped.files_digest):
            return write_archive(folder, target)
    work = target.with_name(f".{target.name}.work")
    try:
        with NewFolder(work) as folder:
            _write(session, reference, folder)
        return write_archive(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_segments(session: Session, run_id: int) -> list[SourceSegment]:
    """The segments of a run in order of launch. They can be read as long as the session is open."""
    names: set[str] = set()
    found: list[SourceSegment] = []
    for row in RunRepository(session).segments(run_id):
        segment = row.segment
        name = _segment_name(segment)
        name = name if name not in names else str(segment.uuid)
        names.add(name)
        told = segment.started_at >= ORDER_ONLY and ("imported" not in segment.config or "launched" in segment.config)
        launched = segment.started_at if told else None
        note = str(segment.config.get("note") or "")
        found.append(SourceSegment(name, launched, note, _Reader(session, run_id, segment)))
    return found


def _segment_name(segment: Segment) -> str:
    """As the source calls it; an imported one by its launch, or its file, and its place."""
    config = segment.config
    source = config.get("launch") or config.get("imported")
    return str(config.get("segment") or (f"{source}-{segment.start_step}" if source else segment.uuid))


class _Reader:
    """Reads one segment, metric by metric."""

    def __init__(self, session: Session, run_id: int, segment: Segment) -> None:
        self._session, self._run_id, self._segment_id = session, run_id, segment.id

    def __call__(self) -> Iterator[Column]:
        series = SeriesRepository(self._session)
        for name in series.names(self._run_id):
            points = series.read(self._run_id, [name], superseded=True).get(name)
            if points is not None:
                mine = np.flatnonzero(points.segments == self._segment_id)
                if len(mine):
                    yield name, points.steps[mine], points.values[mine]


def _with_silent(segments: dict[str, list[SourceSegment]], content: Description) -> dict[str, list[SourceSegment]]:
    """The launches of each stage, those that logged nothing in their places."""
    every = {stage: list(own) for stage, own in segments.items()}
    for one in content.silent:
        every.setdefault(one.stage, []).insert(one.place, SourceSegment(one.segment, one.launched, one.note, tuple))
    return every


def _write(session: Session, reference: Reference, folder: Path) -> None:
    content = description(reference)
    segments: dict[str, list[SourceSegment]] = {}
    written: dict[str, Written] = {}
    series: dict[str, str | None] = {stage.name: None for stage in content.stages}
    order = [stage.name for stage in content.stages]
    expected: list[ExpectedRows] = []
    curves = ReferenceRepository(session).curves(reference.id)
    for link, run in sorted(curves, key=lambda curve: (order.index(curve[0].stage), curve[0].sibling)):
        launches = run_segments(session, run.id)
        if link.sibling:
            write_series(folder / "siblings" / link.stage / f"{link.sibling}.parquet", launches)
            continue
        segments[link.stage] = launches
        read = FingerprintRepository(session).rows(run.id)
        if read is not None:
            expected.append(expected_rows(link.stage, read))
        series[link.stage] = f"series/{link.stage}.parquet"
        written[link.stage] = write_series(folder / "series" / f"{link.stage}.parquet", launches)
    write_expected(folder, expected)
    write_segments(folder / "segments.csv", _with_silent(segments, content), written)
    stages: list[Any] = [stage.model_copy(update={"series": series[stage.name]}) for stage in content.stages]
    write_description(folder, content.model_copy(update={"stages": stages}))
