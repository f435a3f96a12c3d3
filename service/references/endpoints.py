"""Published runs that reproductions are compared with."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Path, Query

from service.context import ContextDep
from service.database.engine import reading
from service.database.models import Reference
from service.errors import NotFoundError
from service.references.describe import description
from service.references.description import Description
from service.references.repository import ReferenceRepository
from service.references.schedule import learning_rate
from service.references.schemas import (
    ReferenceCurve,
    ReferenceDetail,
    ReferenceList,
    ReferenceSummary,
    SchedulePiece,
    ScheduleValues,
)

SCHEDULE_VALUES = 200

router = APIRouter(tags=["references"])


@router.get("/references", operation_id="list_references")
def list_references(context: ContextDep) -> ReferenceList:
    """Every reference in its newest version."""
    with reading(context.engine) as session:
        return ReferenceList(items=[_summary(reference) for reference in ReferenceRepository(session).all_current()])


@router.get("/references/{slug}", operation_id="read_reference")
def read_reference(
    context: ContextDep,
    slug: Annotated[str, Path(max_length=256)],
    version: Annotated[str | None, Query(max_length=64, description="The newest, where not given.")] = None,
) -> ReferenceDetail:
    """One reference: what it is, its tolerances, schedule, source and conflicts, and the runs of its curves."""
    with reading(context.engine) as session:
        repository = ReferenceRepository(session)
        reference = repository.current(slug) if version is None else repository.version(slug, version)
        if reference is None:
            which = slug if version is None else f"{slug} in version {version}"
            raise NotFoundError(f"There is no reference {which}. GET /api/v1/references lists what is installed.")
        return _detail(repository, reference)


def _summary(reference: Reference) -> ReferenceSummary:
    content = description(reference)
    return ReferenceSummary(
        slug=reference.slug,
        version=reference.version,
        title=reference.title,
        source=content.source,
        stages=[stage.name for stage in content.stages],
        installed_at=reference.installed_at,
    )


def _detail(repository: ReferenceRepository, reference: Reference) -> ReferenceDetail:
    content = description(reference)
    return ReferenceDetail(
        slug=reference.slug,
        version=reference.version,
        versions=repository.versions(reference.slug),
        title=reference.title,
        digest=reference.digest,
        installed_at=reference.installed_at,
        source=content.source,
        loss=content.loss,
        recipe=content.recipe,
        stages=content.stages,
        tasks=content.tasks,
        heldout=content.heldout,
        tolerance=content.tolerance,
        schedule=[SchedulePiece(formula=piece.formula, **piece.model_dump()) for piece in content.schedule],
        schedule_values=_schedule_values(content),
        conflicts=content.conflicts,
        curves=[
            ReferenceCurve(stage=link.stage, sibling=link.sibling, run=run.uuid)
            for link, run in repository.curves(reference.id)
        ],
    )


def _schedule_values(content: Description) -> list[ScheduleValues]:
    """Each stage's schedule at evenly spread steps and at the steps where its pieces and warm-ups begin and end."""
    answer: list[ScheduleValues] = []
    for stage in content.stages:
        corners = [0, stage.steps]
        for piece in content.schedule:
            if piece.stage == stage.name:
                corners += [piece.from_step - 1, piece.from_step, piece.warmup_steps]
        even = np.linspace(0, stage.steps, SCHEDULE_VALUES).round()
        steps = np.unique(np.clip(np.concatenate([even, corners]), 0, stage.steps)).astype(np.int64)
        values = learning_rate(content.schedule, stage.name, steps)
        if values is not None:
            answer.append(ScheduleValues(stage=stage.name, steps=steps.tolist(), values=values.tolist()))
    return answer
