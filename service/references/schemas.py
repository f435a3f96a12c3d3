"""What the API says about references."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel

from service.references.description import Heldout, Loss, Source, Stage, Task, ToleranceEntry
from service.references.schedule import Kind
from service.runs.fields import Number, Time


class ReferenceSummary(BaseModel):
    """One reference, in its newest version."""

    slug: str
    version: str
    title: str
    source: Source
    stages: list[str]
    installed_at: Time


class ReferenceList(BaseModel):
    """Every reference, by slug."""

    items: list[ReferenceSummary]


class ReferenceCurve(BaseModel):
    """The run that holds a curve; `sibling` is "" for the reference itself, else the name of a healthy rerun."""

    stage: str
    sibling: str
    run: UUID


class SchedulePiece(BaseModel):
    """One formula of the learning-rate schedule, from `from_step` until the stage's next piece."""

    stage: str
    from_step: int
    kind: Kind
    formula: str
    peak: float
    warmup_steps: int
    final_fraction: float
    total_steps: int


class ScheduleValues(BaseModel):
    """The schedule of one stage at chosen steps, computed from the formulas: `steps` and `values` in parallel."""

    stage: str
    steps: list[int]
    values: list[Number]


class ReferenceDetail(BaseModel):
    """One version of a reference: what it is, where it comes from, and which runs hold its curves."""

    slug: str
    version: str
    versions: list[str]
    title: str
    digest: str
    installed_at: Time
    source: Source
    loss: Loss | None
    recipe: dict[str, Any]
    stages: list[Stage]
    tasks: list[Task]
    heldout: list[Heldout]
    tolerance: dict[str, ToleranceEntry]
    schedule: list[SchedulePiece]
    schedule_values: list[ScheduleValues]
    conflicts: list[str]
    curves: list[ReferenceCurve]
