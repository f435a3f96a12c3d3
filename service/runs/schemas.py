"""What the API says about projects and runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from service.runs.fields import Number, Time


class ProjectAnswer(BaseModel):
    """One model being reproduced."""

    slug: str
    references: int
    reproductions: int
    created_at: Time


class ProjectList(BaseModel):
    """Every project, by slug."""

    items: list[ProjectAnswer]


class Progress(BaseModel):
    """How far a run is through its reference's stage, in percent (0 to 100, above if it goes on beyond)."""

    steps_percent: float
    tokens_percent: float | None
    stage_steps: int
    stage_tokens: int


class RunSummary(BaseModel):
    """One run in a list. `last_tokens` counts from the start of the stage, `age_seconds` from the last data to now.

    `archived_at`: since when lists leave it out unless they are asked for archived runs; null: they show it.
    """

    id: UUID
    project: str
    name: str
    stage: str
    role: str
    reference: str | None
    verdict: str | None
    open_alerts: int
    last_step: int | None
    last_tokens: Number | None
    last_data_at: Time | None
    age_seconds: float | None
    progress: Progress | None
    data_version: int
    created_at: Time
    archived_at: Time | None


class RunChange(BaseModel):
    """What may be changed about a run."""

    model_config = ConfigDict(extra="forbid")

    archived: bool


class RunPage(BaseModel):
    """Runs in the order asked for; `next_cursor` is null on the last page."""

    items: list[RunSummary]
    next_cursor: str | None


class SegmentAnswer(BaseModel):
    """One start of the trainer. Its points beyond `live_to_step` are superseded; null: none are.

    `started_at` is null where only the order of launches is known.
    """

    id: UUID
    kind: str
    start_step: int
    start_tokens: float | None
    tokens_per_step: int | None
    ramp: list[Any] | None
    topology: dict[str, Any]
    config: dict[str, Any]
    versions: dict[str, Any]
    sample_rows: int
    started_at: Time | None
    finished_at: Time | None
    live_to_step: int | None
    superseded: bool


class RunReference(BaseModel):
    """The reference version a run is compared with now, and the runs of its curve and of its healthy reruns."""

    slug: str
    version: str
    title: str
    run: UUID | None
    siblings: list[UUID]
    primary_heldout: str
    published_tasks: bool


class VerdictAnswer(BaseModel):
    """The verdict as it was last reached."""

    state: str
    body: dict[str, Any]
    decided_at: Time


class Fork(BaseModel):
    """The run, and the step, that a run went out from."""

    run: UUID
    step: int


class RunDetail(RunSummary):
    """Everything a page about one run begins with.

    `judged_version` is the `data_version` that the last judgement saw: where they are equal, all data is judged.
    """

    judged_version: int
    token_offset: float
    forked_from: Fork | None
    data: dict[str, Any] | None
    metrics: list[str]
    segments: list[SegmentAnswer]
    compared_with: RunReference | None
    verdict_detail: VerdictAnswer | None


class EventAnswer(BaseModel):
    """Something the trainer said beside numbers: a checkpoint, a change of config, a note."""

    step: int
    kind: str
    value: Any
    at: Time
    segment: UUID


class EventPage(BaseModel):
    """Events by step; `next_cursor` is null on the last page."""

    items: list[EventAnswer]
    next_cursor: str | None
