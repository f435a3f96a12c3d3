"""Projects, runs and what trainers said about them."""

from __future__ import annotations

import time
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query

from service.context import ContextDep
from service.database.engine import reading, writing
from service.errors import NotFoundError
from service.runs.answers import RunAnswers
from service.runs.listing import Listing, Sort
from service.runs.repository import RunRepository
from service.runs.schemas import (
    EventAnswer,
    EventPage,
    ProjectAnswer,
    ProjectList,
    RunChange,
    RunDetail,
    RunPage,
    RunSummary,
)

Cursor = Annotated[str | None, Query(max_length=2048, description="`next_cursor` of the page before.")]

Verdict = Literal["matching", "consistent", "drifting", "diverged", "not enough data", "not judged"]

router = APIRouter(tags=["runs"])


@router.get("/projects", operation_id="list_projects")
def list_projects(context: ContextDep) -> ProjectList:
    """Every project and how many runs it holds."""
    with reading(context.engine) as session:
        rows = RunRepository(session).projects()
        return ProjectList(
            items=[
                ProjectAnswer(
                    slug=row.project.slug,
                    references=row.references,
                    reproductions=row.reproductions,
                    created_at=row.project.created_at,
                )
                for row in rows
            ]
        )


@router.get("/runs", operation_id="list_runs")
def list_runs(
    context: ContextDep,
    project: Annotated[str | None, Query(max_length=256)] = None,
    role: Literal["reference", "reproduction"] | None = None,
    verdict: Annotated[Verdict | None, Query(description="Only runs with this verdict.")] = None,
    search: Annotated[
        str | None, Query(max_length=256, description="Text to find in the names of run, stage and project.")
    ] = None,
    archived: Annotated[bool | None, Query(description="Only archived runs, or only others; left out: both.")] = None,
    alerts: Annotated[bool | None, Query(description="Only runs with an open alert, or only those without.")] = None,
    sort: Annotated[Sort, Query(description="By name it rises, else the highest comes first.")] = "newest",
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> RunPage:
    """Runs, the newest first unless asked otherwise. Reads state tables only, whatever the number of points."""
    listing = Listing(project, role, verdict, search, archived, alerts, sort, cursor)
    with reading(context.engine) as session:
        rows, following = RunRepository(session).page(listing, limit)
        answers = RunAnswers(session)
        return RunPage(items=[answers.summary(row) for row in rows], next_cursor=following)


@router.get("/runs/{run_id}", operation_id="read_run")
def read_run(context: ContextDep, run_id: UUID) -> RunDetail:
    """One run: how far it is, its segments, its reference and its verdict."""
    with reading(context.engine) as session:
        row = RunRepository(session).row(run_id)
        if row is None:
            raise unknown_run(run_id)
        return RunAnswers(session).detail(row)


@router.patch("/runs/{run_id}", operation_id="change_run")
def change_run(context: ContextDep, run_id: UUID, body: RunChange) -> RunSummary:
    """Archive a run, so that lists leave it out, or take it back. It is judged and its alerts are sent as ever."""
    with writing(context.engine) as session:
        repository = RunRepository(session)
        row = repository.row(run_id)
        if row is None:
            raise unknown_run(run_id)
        if body.archived != (row.run.archived_at is not None):
            repository.set_archived(row.run.id, time.time() if body.archived else None)
            session.refresh(row.run)
        answer = RunAnswers(session).summary(row)
    context.broker.publish("run", {"run": str(run_id)})
    return answer


@router.get("/runs/{run_id}/events", operation_id="list_run_events")
def list_run_events(
    context: ContextDep,
    run_id: UUID,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> EventPage:
    """What the trainer said beside numbers, by step."""
    with reading(context.engine) as session:
        repository = RunRepository(session)
        run = repository.by_uuid(run_id)
        if run is None:
            raise unknown_run(run_id)
        events, following = repository.events(run.id, cursor, limit)
        segments = {row.segment.id: row.segment.uuid for row in repository.segments(run.id)}
        items = [
            EventAnswer(
                step=event.step,
                kind=event.kind,
                value=event.value.get("value"),
                at=event.at,
                segment=segments[event.segment_id],
            )
            for event in events
        ]
        return EventPage(items=items, next_cursor=following)


def unknown_run(run_id: UUID) -> NotFoundError:
    """The answer where no run has this id."""
    return NotFoundError(f"There is no run {run_id}. GET /api/v1/runs lists the runs.")
