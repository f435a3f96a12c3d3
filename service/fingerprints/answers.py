"""Puts together what a run's fingerprints say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from service.database.models import Run
from service.detect import heldout_text, repeated_text, rows
from service.detect.inputs import DeclaredData, RowReadings, RunView
from service.detect.rules.expected_rows import said
from service.detect.same_rows import beside
from service.fingerprints.audit import passes, repeated
from service.fingerprints.repository import FingerprintRepository
from service.fingerprints.schemas import (
    HeldoutAudit,
    PassAudit,
    RepeatBin,
    RepeatDistance,
    RepeatPattern,
    RowAudit,
    RowsReturned,
    RunAudit,
    SameRows,
)
from service.judgements.beside import declared_data, trainer_starts
from service.references.describe import description
from service.references.repository import ReferenceRepository
from service.rules.effective import settings_of
from service.rules.reading import settings_in_force
from service.runs.repository import RunRepository


def audit_of(session: Session, run: Run, other: Run | None = None) -> RunAudit:
    """What the run has read. Its rows are held beside those of `other`, by default of its reference, if it has any."""
    stored = FingerprintRepository(session)
    read, windows, hits = stored.rows(run.id), stored.rows(run.id, "windows"), stored.heldout_hits(run.id)
    launches = RunRepository(session).live_segments(run.id)
    config: Mapping[str, Any] = next(
        (launch.config for launch in reversed(launches) if launch.kind != "evaluator"), dict[str, Any]()
    )
    data = declared_data(run.data, config)
    view = RunView(
        {}, {}, {}, trainer_starts(launches, read), rows=read, windows=windows, data=data, heldout_hits=hits or None,
        settings=settings_of(settings_in_force(session, run)),
    )  # fmt: skip
    return RunAudit(
        run=run.uuid,
        rows=_rows(rows.RowWatch(), view, read, data or _ordered(session, run)),
        windows=_rows(repeated_text.TextWatch(), view, windows, data, of_rows=False),
        heldout=[
            HeldoutAudit(
                set=found.name, rate=found.rate, windows=found.looked_for, rows_read=found.rows,
                rows_with_text=found.pieces, rows_with_passage=found.hits, windows_met=found.met, share=found.share,
                low=found.interval[0], high=found.interval[1], natural=found.natural,
                natural_source=found.natural_source, onset=found.onset,
                rows_with_document=found.documents, set_share=found.whole,
            )
            for found in heldout_text.find(view)
        ],
        same_rows=_same(session, run, read, other, view),
        unseen=_unseen(read, windows, view, data),
    )  # fmt: skip


def _rows(
    watch: rows.RowWatch, view: RunView, readings: RowReadings | None, corpus: DeclaredData | None, *,
    of_rows: bool = True,
) -> RowAudit | None:  # fmt: skip
    """`corpus` is what the run declared, or what its reference says instead."""
    if readings is None or (len(readings.hashes) == 0 and len(readings.seen_steps) == 0):
        return None
    found = watch.find(view, readings)
    pattern, seen, more = found.pattern, readings.seen_steps, repeated(readings, view.data, watch.repeats)
    return RowAudit(
        sample=found.sample,
        readings=found.sampled,
        distinct=found.distinct,
        repeats=found.repeats,
        planned=found.legal,
        share=found.share,
        low=found.interval[0],
        high=found.interval[1],
        natural=found.natural,
        natural_source=found.natural_source,
        rows_read=found.rows_read,
        distinct_rows=found.distinct_rows if of_rows else None,
        declared_rows=corpus.rows if corpus else None,
        declared_epochs=corpus.epochs if corpus else None,
        declared_by=None if corpus is None else "run" if view.data else "reference",
        coverage=min(found.distinct_rows / corpus.rows, 1.0) if corpus and of_rows else None,
        passes=[
            PassAudit(number=p.number, rows_read=p.read, distinct_rows=p.distinct, coverage=p.within)
            for p in (passes(readings, corpus) if corpus and of_rows else ())
        ],
        hosts=found.hosts,
        steps=len(seen),
        first_step=int(seen[0]) if len(seen) else None,
        last_step=int(seen[-1]) if len(seen) else None,
        onset=found.onset,
        pattern=RepeatPattern(
            lag=pattern.lag,
            lag_share=pattern.lag_share,
            same_step=pattern.same_step,
            own_host=pattern.own_host,
            new_share=pattern.new_share,
            copies=pattern.copies,
        )
        if pattern
        else None,
        within_batch=more.within_batch,
        across_hosts=more.across_hosts,
        distances=[RepeatDistance(steps=steps, repeats=repeats) for steps, repeats in more.distances],
        restarts=[
            RowsReturned(restart=r.restart, readings=r.readings, returned=r.returned, lag=r.lag, hits=r.hits)
            for r in found.returns
        ],
        over_time=[
            RepeatBin(first_step=b.first, last_step=b.last, readings=b.readings, repeats=b.repeats) for b in more.bins
        ],
    )


def _ordered(session: Session, run: Run) -> DeclaredData | None:
    """The rows that the reference's data order is made of."""
    reference = ReferenceRepository(session).current(run.reference) if run.reference else None
    order = None if reference is None else description(reference).data_order.get(run.stage)
    return None if order is None else DeclaredData(order.rows, order.epochs)


def _same(session: Session, run: Run, read: RowReadings | None, other: Run | None, view: RunView) -> SameRows | None:
    if other is None and run.reference:
        references = ReferenceRepository(session)
        reference = references.current(run.reference)
        other = None if reference is None else references.run_of(reference.id, run.stage)
    if read is None or other is None or other.id == run.id:
        return None
    expected = FingerprintRepository(session).rows(other.id)
    if expected is None:
        return None
    restart = max((start.start_step for start in view.segments), default=0)
    found = beside(read, expected, restart, view.data)
    return SameRows(
        run=other.uuid, name=other.name, sample=found.sample, steps=found.steps, told=found.told,
        compared=found.compared, same=found.same, through=found.through, differs=found.differs,
        wrong_steps=found.wrong_steps, since=found.since, relation=found.relation, shift=found.shift,
        steady=found.steady, known=found.known, looked=found.looked, summary=said(found, other.name),
    )  # fmt: skip


def _unseen(
    read: RowReadings | None, windows: RowReadings | None, view: RunView, data: DeclaredData | None
) -> list[str]:
    """What the fingerprints of this run cannot show."""
    told: list[str] = []
    if read is None:
        told.append("No row fingerprints were sent: nothing is known of the rows that were read.")
    elif len(read.seen_steps):
        span = int(read.seen_steps[-1]) - int(read.seen_steps[0]) + 1
        if len(read.seen_steps) < span:
            told.append(f"{span - len(read.seen_steps):,} of {span:,} steps were not reported.")
        if read.sample > 1:
            told.append(
                f"1 row in {read.sample:,} is known: fewer than some {3 * read.sample:,} repeated rows may not show."
            )
    if windows is None:
        told.append("No windows were sent: text that is read again in other rows does not show.")
    else:
        told.append(
            f"1 window of 32 tokens in {windows.sample:,} is known; text changed within every 32 tokens does not show."
        )
    if not view.heldout_hits:
        told.append("No held-out set is looked for: held-out text in training rows does not show.")
    else:
        rate = max(hits.rate for hits in view.heldout_hits.values())
        told.append(
            f"1 held-out window in {rate} is looked for: of a passage of n tokens nothing shows with probability "
            f"(1 - 1/{rate})^(n - 31)."
        )
    if data is None:
        told.append("The data set's rows were not declared: coverage and planned passes are not known.")
    return told
