"""Makes an imported run a reference that others are compared with."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.database.models import Reference, ReferenceRun, Run, RunState
from service.importers.job import Report
from service.importers.rows import LogError
from service.references.description import Description, Heldout, Source, Stage
from service.references.repository import ReferenceRepository
from service.series.repository import SeriesRepository

TRAIN = "train/ce_loss"
HELDOUT = re.compile(r"heldout/([^/]+)/ce_loss")
NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True)
class Publication:
    """What is known of where the numbers come from."""

    slug: str
    version: str
    stage: str
    tokens_per_step: int
    url: str = ""
    licence: str = NOT_STATED
    citation: str = NOT_STATED


def run_name(slug: str, version: str) -> str:
    """Name of the run that holds a reference's curve."""
    return f"{slug}@{version}"


def publish(session: Session, report: Report, publication: Publication) -> Reference:
    """Record the run of a report as one version of a reference. Again with the same run it changes nothing.

    Raises:
        LogError: the run holds no train loss, so that nothing can be compared with it.
    """
    ((_, outcome),) = report.runs.values()
    run = session.get_one(Run, outcome.run_id)
    metrics = SeriesRepository(session).names(run.id)
    if TRAIN not in metrics:
        raise LogError(f"nothing in the log is {TRAIN}: a reference needs it; say which with --map NAME={TRAIN}")
    found = ReferenceRepository(session).version(publication.slug, publication.version)
    if found is not None:
        return found
    state = session.get_one(RunState, run.id)
    steps = max(state.last_step or 1, 1)
    reference = Reference(
        slug=publication.slug,
        version=publication.version,
        title=publication.slug,
        digest=publication.version,
        description=_description(publication, metrics, steps).model_dump(mode="json"),
        installed_at=time.time(),
    )
    session.add(reference)
    session.flush()
    session.add(ReferenceRun(reference_id=reference.id, stage=publication.stage, sibling="", run_id=run.id))
    session.execute(  # a published run has no last data: its numbers are as old as the publication
        update(RunState)
        .where(RunState.run_id == run.id)
        .values(last_data_at=None, last_tokens=float(steps * publication.tokens_per_step))
    )
    return reference


def known_slug(session: Session, slug: str) -> bool:
    """Whether any version of a reference is installed."""
    return session.scalar(select(Reference.id).where(Reference.slug == slug).limit(1)) is not None


def _description(publication: Publication, metrics: list[str], steps: int) -> Description:
    sets = [(match[1], metric) for metric in metrics if (match := HELDOUT.fullmatch(metric))]
    heldout = [
        Heldout(name=name, metric=metric, id=f"{publication.slug}/{name}", primary=place == 0)
        for place, (name, metric) in enumerate(sets)
    ]
    stage = Stage(name=publication.stage, steps=steps, tokens_per_step=publication.tokens_per_step)
    return Description(
        slug=publication.slug,
        version=publication.version,
        title=publication.slug,
        source=Source(url=publication.url, licence=publication.licence, citation=publication.citation),
        stages=[stage],
        heldout=heldout,
    )
