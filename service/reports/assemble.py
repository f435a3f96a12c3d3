"""Puts a report together from what is stored: nothing is judged anew, and no clock is looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from sqlalchemy.orm import Session

from service.database.models import Project, Reference, Run, RunState
from service.judgements.repository import JudgementRepository
from service.judgements.view import UnknownReferenceError, reference_view
from service.references.describe import description
from service.references.description import Description
from service.references.repository import ReferenceRepository
from service.reports import incidents
from service.reports.audit import data_audit
from service.reports.beside import Comparison, compare
from service.reports.check import Known
from service.reports.curves import charts
from service.reports.document import (
    Checkpoint,
    ConversionPart,
    Incident,
    Mark,
    Progress,
    ReferencePart,
    Report,
    RunPart,
    SegmentPart,
    sealed,
)
from service.reports.judged import judged_of, verdict_of
from service.reports.landmarks import Place, asked, usual
from service.runs.answers import segment_answer
from service.runs.conversions import conversions
from service.runs.fields import rfc3339
from service.runs.repository import RunRepository
from service.runs.schemas import SegmentAnswer
from service.series.repository import SeriesRepository

SEGMENTS = 200  # the newest
MARKED = 5  # alerts in the pictures
ORDER = ("yes", "cannot tell", "no")


@dataclass(frozen=True, slots=True)
class _Subject:
    session: Session
    run: Run
    state: RunState | None
    reference: Reference | None
    content: Description | None


def assemble(session: Session, run: Run, at: Sequence[Place] = (), *, drawn: bool = True) -> Report:
    """The report of a run at chosen checkpoints, by default a few that tell its story; without its curves unless they
    are `drawn`."""
    reference = ReferenceRepository(session).current(run.reference) if run.reference else None
    content = description(reference) if reference is not None else None
    subject = _Subject(session, run, RunRepository(session).state(run.id), reference, content)
    view = None
    with contextlib.suppress(UnknownReferenceError):
        view = reference_view(session, run)
    series = SeriesRepository(session)
    names = series.names(run.id)
    compared = compare(session, series, run, view, content, names)
    left = list(compared.left_out)
    judged = judged_of(session, run)
    bodies = {row.rule: row.body for row in JudgementRepository(session).of_run(run.id)}
    happened = incidents.incidents(session, run, bodies, left)
    checkpoints = _checkpoints(compared, at, happened)
    segments, meanings, converted = _segments(subject, series, names, left)
    curve = ReferenceRepository(session).run_of(reference.id, run.stage) if reference is not None else None
    launches = RunRepository(session).live_segments(run.id)
    return sealed(
        Report(
            generator=f"pacenote {version('pacenote')}",
            run=_run(subject, len(names)),
            progress=_progress(subject, series, segments),
            reference=_reference(subject),
            verdict=verdict_of(session, run, reference),
            checkpoints=checkpoints,
            table=[one.row([c.step for c in checkpoints]) for one in compared.all] if checkpoints else [],
            charts=charts(series, run, curve, view, compared) if drawn else [],
            marks=_marks(happened, compared),
            segments=segments,
            incidents=happened,
            deviations=incidents.deviations(session, run),
            data=data_audit(run, launches, judged),
            parity=judged.get("initial_parity"),
            rules=sorted(judged.values(), key=lambda one: ORDER.index(one.state) if one.state in ORDER else 0),
            settings=incidents.setting_changes(session, run, left),
            step_meanings=meanings,
            conversions=converted,
            left_out=left,
        )
    )


def _run(subject: _Subject, metrics: int) -> RunPart:
    run = subject.run
    return RunPart(
        id=str(run.uuid), project=subject.session.get_one(Project, run.project_id).slug, name=run.name,
        stage=run.stage, role=run.role, forked_from=None if run.forked_from is None else str(run.forked_from),
        forked_at_step=run.forked_at_step, metrics=metrics,
    )  # fmt: skip


def _progress(subject: _Subject, series: SeriesRepository, segments: Sequence[SegmentPart]) -> Progress:
    state, stage = subject.state, subject.content.stage(subject.run.stage) if subject.content else None
    step = state.last_step if state is not None else None
    within = state.last_tokens if state is not None else None
    total = stage.steps * stage.tokens_per_step if stage is not None else None
    share = None
    if stage is not None and total is not None and step is not None:
        share = within / total if within is not None else step / stage.steps
    live = [segment for segment in segments if not segment.superseded]
    return Progress(
        step=step, tokens=None if within is None else subject.run.token_offset + within,
        stage_steps=stage.steps if stage is not None else None, stage_tokens=total, stage_share=share,
        last_data_at=None if state is None or state.last_data_at is None else rfc3339(state.last_data_at),
        finished=bool(live) and all(segment.finished_at is not None for segment in live),
    )  # fmt: skip


def _reference(subject: _Subject) -> ReferencePart | None:
    row, content = subject.reference, subject.content
    if row is None or content is None:
        return None
    siblings = ReferenceRepository(subject.session).siblings(row.id, subject.run.stage)
    return ReferencePart(
        slug=row.slug, version=row.version, digest=row.digest, title=row.title, url=content.source.url,
        retrieved=content.source.retrieved, licence=content.source.licence, citation=content.source.citation,
        siblings=len(siblings), loss=content.loss.definition if content.loss else "",
        loss_proven=bool(content.loss and content.loss.proven), conflicts=list(content.conflicts),
    )  # fmt: skip


def _checkpoints(found: Comparison, at: Sequence[Place], happened: Sequence[Incident]) -> list[Checkpoint]:
    steps, tokens = found.evaluations()
    if at:
        chosen = asked(at, steps, tokens)
    else:
        first = next((one for one in happened if one.family == "curve_and_data" and one.onset_steps), None)
        onset = first.onset_steps if first is not None else None
        chosen = usual(steps, onset, None if first is None else first.opened_step)
    return [
        Checkpoint(step=int(steps[i]), tokens=float(tokens[i]) if np.isfinite(tokens[i]) else None, why=why)
        for i, why in chosen.items()
    ]


def _marks(happened: Sequence[Incident], found: Comparison) -> list[Mark]:
    train = found.train
    marks: list[Mark] = []
    for one in happened:
        if one.family != "curve_and_data" or one.onset_tokens is None:
            continue
        raised = one.onset_tokens[1]
        if train is not None and len(train.steps):
            raised = max(float(np.interp(one.opened_step, train.steps, train.tokens)), one.onset_tokens[0])
        marks.append(Mark(onset=one.onset_tokens, raised=raised, label=one.title, resolved=one.state == "resolved"))
    return marks[-MARKED:]


def _segments(
    subject: _Subject, series: SeriesRepository, names: Sequence[str], left: list[str]
) -> tuple[list[SegmentPart], list[str], list[ConversionPart]]:
    rows = RunRepository(subject.session).segments(subject.run.id)
    answers = [segment_answer(row) for row in rows]
    meanings, converted = conversions(answers, names)
    if len(answers) > SEGMENTS:
        left.append(f"{len(answers) - SEGMENTS} older segments")
    axis = series.axis(subject.run.id)
    parts = [
        _segment(answer, float(axis.of(np.array([answer.start_step]), row.segment.id)[0]))
        for row, answer in zip(rows[-SEGMENTS:], answers[-SEGMENTS:], strict=True)
    ]
    return parts, meanings, [ConversionPart(metric=c.metric, formula=c.formula, why=c.why) for c in converted]


def _segment(answer: SegmentAnswer, tokens: float) -> SegmentPart:
    return SegmentPart(
        kind=answer.kind, start_step=answer.start_step, start_tokens=tokens if np.isfinite(tokens) else None,
        started_at=None if answer.started_at is None else rfc3339(answer.started_at),
        finished_at=None if answer.finished_at is None else rfc3339(answer.finished_at),
        live_to_step=answer.live_to_step, superseded=answer.superseded, topology=answer.topology,
        versions=answer.versions,
    )  # fmt: skip


def known_of(session: Session, run: Run) -> Known:
    """What limits are held against (`service.reports.check`)."""
    reference = ReferenceRepository(session).current(run.reference) if run.reference else None
    view = None
    with contextlib.suppress(UnknownReferenceError):
        view = reference_view(session, run)
    series, state = SeriesRepository(session), RunRepository(session).state(run.id)
    content = description(reference) if reference is not None else None
    found = compare(session, series, run, view, content, series.names(run.id))
    return Known(
        None if state is None else state.last_step, found, verdict_of(session, run, reference),
        judged_of(session, run).get("repeated_rows"),
    )  # fmt: skip
