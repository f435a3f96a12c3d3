"""The text of a reference's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from service.context import Context
from service.references.description import Heldout, Loss
from service.references.endpoints import list_references, read_reference
from service.references.schemas import ReferenceDetail
from web import formatting


@dataclass(frozen=True, slots=True)
class StageLine:
    """One stage and whether its curves are there."""

    name: str
    title: str
    steps: int
    tokens_per_step: int
    token_offset: float
    has_series: bool
    points: str


@dataclass(frozen=True, slots=True)
class ToleranceLine:
    """How far a healthy reproduction may wander in one metric, and who says so."""

    metric: str
    value: float
    unit: str
    source: str
    runs: int
    noise_sd: float | None
    window_steps: int | None


@dataclass(frozen=True, slots=True)
class TaskLine:
    """One task; `error` is the binomial standard error at one half."""

    key: str
    items: int
    error: float
    published: bool


@dataclass(frozen=True, slots=True)
class ReferencePage:
    """Everything but the figures. `no_accuracies` counts the tasks without published values."""

    slug: str
    version: str
    title: str
    installed_at: float
    source: Sequence[tuple[str, str]]
    loss: Loss | None
    stages: Sequence[StageLine]
    tolerances: Sequence[ToleranceLine]
    tasks: Sequence[TaskLine]
    no_accuracies: int
    heldout: Sequence[Heldout]
    recipe: Sequence[tuple[str, str]]
    conflicts: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReferenceLine:
    """One reference of the list."""

    slug: str
    version: str
    title: str
    stages: Sequence[str]
    citation: str


def reference_lines(context: Context) -> list[ReferenceLine]:
    """Every reference in its newest version."""
    items = list_references(context).items
    return [ReferenceLine(r.slug, r.version, r.title, r.stages, r.source.citation) for r in items]


def reference_page(context: Context, slug: str) -> ReferencePage:
    """The page of one reference.

    Raises:
        NotFoundError: no reference has this slug.
    """
    reference = read_reference(context, slug)
    source = reference.source
    named = [("Source", source.citation), ("Address", source.url), ("Retrieved", source.retrieved)]
    return ReferencePage(
        slug=reference.slug,
        version=reference.version,
        title=reference.title,
        installed_at=reference.installed_at,
        source=[(name, value) for name, value in [*named, ("Licence", source.licence)] if value],
        loss=reference.loss,
        stages=_stages(reference),
        tolerances=[
            ToleranceLine(metric, t.value, t.unit, t.source, t.runs, t.noise_sd, t.window_steps)
            for metric, t in reference.tolerance.items()
        ],
        tasks=[TaskLine(t.key, t.items, math.sqrt(0.25 / t.items), t.published) for t in reference.tasks],
        no_accuracies=sum(not task.published for task in reference.tasks),
        heldout=reference.heldout,
        recipe=[(name.replace("_", " ").capitalize(), _text(value)) for name, value in reference.recipe.items()],
        conflicts=reference.conflicts,
    )


def _stages(reference: ReferenceDetail) -> list[StageLine]:
    lines: list[StageLine] = []
    for stage in reference.stages:
        curves = [curve for curve in reference.curves if curve.stage == stage.name]
        siblings = sum(curve.sibling != "" for curve in curves)
        own = any(curve.sibling == "" for curve in curves)
        points = "no public series" if not own else "curves"
        if siblings:
            points += f", {formatting.number(siblings)} healthy sibling{'s' if siblings > 1 else ''}"
        lines.append(
            StageLine(stage.name, stage.title, stage.steps, stage.tokens_per_step, stage.token_offset, own, points)
        )
    return lines


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_text(part)}" for name, part in cast("dict[str, Any]", value).items())
    return ", ".join(map(_text, cast("list[Any]", value))) if isinstance(value, list) else str(value)
