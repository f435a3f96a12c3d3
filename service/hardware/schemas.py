"""What the API says about the starts of a run."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel

from service.runs.fields import Time


class ChangeAnswer(BaseModel):
    """One entry that is not as in the segment before; null where it is not there."""

    name: str
    before: Any
    after: Any


class PeakAnswer(BaseModel):
    """Dense bfloat16 peak of one JAX device, of which `devices_per_chip` are one chip or card."""

    device: str
    tflops_per_device: float
    devices_per_chip: int
    source: str


class Utilization(BaseModel):
    """MFU by one way of counting: FLOPs of a token × tokens/s of a device / its peak, from 0 to 1.

    Null, with the reason in `why_not`, where the device, the model's shape or the throughput is not known."""

    formula: Literal["exact", "maxtext", "palm"]
    title: str
    flops_per_token: float | None
    mfu: float | None
    why_not: str | None


class SegmentUse(BaseModel):
    """One start: what it ran on, what is not as in the start before it (null for the first), and how well the devices
    were used. `tokens_per_second_per_device` is the median of `steps_measured` of its last 20,000
    steps, by the metric `measured_by`."""

    id: UUID
    kind: str
    start_step: int
    live_to_step: int | None
    superseded: bool
    started_at: Time | None
    finished_at: Time | None
    device_kind: str | None
    devices: int | None
    processes: int | None
    mesh: dict[str, Any] | None
    batch_shape: list[Any] | None
    versions: dict[str, Any]
    config_hash: str | None
    changes: list[ChangeAnswer] | None
    changes_left_out: int
    tokens_per_second_per_device: float | None
    steps_measured: int
    measured_by: str | None
    why_no_throughput: str | None
    peak: PeakAnswer | None
    utilization: list[Utilization]


class SegmentTable(BaseModel):
    """Every start of a run, in order of launch."""

    items: list[SegmentUse]
