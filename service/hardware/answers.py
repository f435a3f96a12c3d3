"""Puts together what is said about the starts of a run."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from service.database.models import Run, Segment
from service.hardware.changes import HASH, changes
from service.hardware.flops import FORMULAS, NotCountedError, Shape
from service.hardware.peaks import Peak, peak
from service.hardware.schemas import ChangeAnswer, PeakAnswer, SegmentTable, SegmentUse, Utilization
from service.hardware.shape import shape_of
from service.hardware.throughput import Throughput, throughput
from service.runs.answers import ORDER_ONLY
from service.runs.repository import RunRepository, SegmentRow
from service.series.repository import SeriesRepository

MOST_CHANGES = 200  # in one answer; more than that is another configuration


def segment_table(session: Session, run: Run) -> SegmentTable:
    """Every start of a run. A change is from the start of the same kind before it."""
    runs, series = RunRepository(session), SeriesRepository(session)
    state = runs.state(run.id)
    last_step = (state.last_step if state else None) or 0
    before: dict[str, Segment] = {}
    items: list[SegmentUse] = []
    for row in runs.segments(run.id):
        segment = row.segment
        items.append(_use(row, before.get(segment.kind), throughput(series, row, last_step)))
        before[segment.kind] = segment
    return SegmentTable(items=items)


def _use(row: SegmentRow, before: Segment | None, rate: Throughput | str) -> SegmentUse:
    segment, topology = row.segment, row.segment.topology
    measured = rate if isinstance(rate, Throughput) else None
    kind = _as(topology.get("device_kind"), str)
    found = peak(kind)
    differing = changes(before, segment) if before is not None else None
    return SegmentUse(
        id=segment.uuid,
        kind=segment.kind,
        start_step=segment.start_step,
        live_to_step=row.live_to_step,
        superseded=row.superseded,
        started_at=segment.started_at if segment.started_at >= ORDER_ONLY else None,
        finished_at=segment.finished_at,
        device_kind=kind,
        devices=_as(topology.get("devices"), int),
        processes=_as(topology.get("processes"), int),
        mesh=_as(topology.get("mesh"), dict),
        batch_shape=_as(topology.get("batch_shape"), list),
        versions=segment.versions,
        config_hash=_as(segment.versions.get(HASH), str),
        changes=None
        if differing is None
        else [ChangeAnswer(name=c.name, before=c.before, after=c.after) for c in differing[:MOST_CHANGES]],
        changes_left_out=max(len(differing or ()) - MOST_CHANGES, 0),
        tokens_per_second_per_device=measured.tokens_per_second_per_device if measured else None,
        steps_measured=measured.n if measured else 0,
        measured_by=measured.metric if measured else None,
        why_no_throughput=None if isinstance(rate, Throughput) else rate,
        peak=None
        if found is None
        else PeakAnswer(
            device=found.name,
            tflops_per_device=found.tflops,
            devices_per_chip=found.devices,
            source=found.source,
        ),
        utilization=utilization(segment, rate, kind, found),
    )


def utilization(segment: Segment, rate: Throughput | str, kind: str | None, found: Peak | None) -> list[Utilization]:
    """MFU by every formula, or why there is none."""
    try:
        shape, why = shape_of(segment.config, _batch_shape(segment)), ""
    except NotCountedError as error:
        shape, why = None, str(error)
    if isinstance(rate, str):
        why = rate
    elif found is None:
        why = f"no peak is known for the device {kind!r}" if kind else "the trainer did not say what device it runs on"
    answers: list[Utilization] = []
    for formula in FORMULAS:
        flops, mfu, why_not = None, None, why
        if shape is not None:
            flops, not_counted = _count(shape, formula.count)
            why_not = why or not_counted
            if flops is not None and found is not None and isinstance(rate, Throughput):
                mfu = flops * rate.tokens_per_second_per_device / (found.tflops * 1e12)
        answers.append(
            Utilization(
                formula=formula.name, title=formula.title, flops_per_token=flops, mfu=mfu, why_not=why_not or None
            )
        )
    return answers


def _count(shape: Shape, formula: Any) -> tuple[float | None, str]:
    try:
        return formula(shape), ""
    except NotCountedError as error:
        return None, str(error)


def _batch_shape(segment: Segment) -> list[int] | None:
    shape: list[Any] = _as(segment.topology.get("batch_shape"), list) or []
    return shape if shape and all(type(size) is int for size in shape) else None


def _as(value: Any, kind: type) -> Any:
    """A value of a topology, which may hold anything: None where it is not what it should be."""
    return value if isinstance(value, kind) and not isinstance(value, bool) else None
