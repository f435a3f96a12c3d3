"""What was judged of a run, in the words of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from service.database.models import Reference, Run
from service.judgements.repository import JudgementRepository
from service.reports.document import Judged, VerdictPart
from service.runs.fields import rfc3339
from service.runs.repository import RunRepository


def verdict_of(session: Session, run: Run, reference: Reference | None) -> VerdictPart:
    """The verdict, and whether it is about all there is."""
    state = RunRepository(session).state(run.id)
    row = JudgementRepository(session).verdict(run.id)
    seen = RunRepository(session).judged_version(run.id)
    note = ""
    if row is None:
        if run.role == "reference":
            note = "This is a published run; nothing is judged of it."
        elif not run.reference:
            note = "The run names no reference: there is nothing to be the same as."
        elif reference is None:
            note = f"The reference {run.reference} is not installed."
        else:
            note = "Nothing was judged yet: pacenote serve or pacenote worker judges what is stored."
        return VerdictPart(state=None, because="", decided_at=None, at_step=None, reference=run.reference, version=None,
                           current=False, note=note)  # fmt: skip
    if state is not None and seen < state.data_version:
        note = "Data have come since that are not judged yet."
    elif reference is not None and row.body.get("version") != reference.version:
        note = f"Version {reference.version} of the reference has come since, which is not judged yet."
    return VerdictPart(
        state=row.state, because=str(row.body.get("because", "")), decided_at=rfc3339(row.decided_at),
        at_step=max((one.at_step for one in JudgementRepository(session).of_run(run.id)), default=None),
        reference=row.body.get("reference"), version=row.body.get("version"), current=not note, note=note,
    )  # fmt: skip


def judged_of(session: Session, run: Run) -> dict[str, Judged]:
    """The newest answer of each rule."""
    found: dict[str, Judged] = {}
    for row in JudgementRepository(session).of_run(run.id):
        body: Mapping[str, Any] = row.body
        interval = body.get("interval")
        found[row.rule] = Judged(
            rule=row.rule, family=row.family, state=row.state, at_step=row.at_step, decided_at=rfc3339(row.decided_at),
            since_step=None if not body.get("since_step") else (int(body["since_step"][0]), int(body["since_step"][1])),
            summary=str(body.get("summary", "")), value=body.get("value"),
            interval=None if not interval else (interval[0], interval[1]), unit=str(body.get("unit", "")),
            limit=body.get("limit"), limit_source=str(body.get("limit_source", "")), n=int(body.get("n") or 0),
            evidence=list(body.get("evidence") or ()),
        )  # fmt: skip
    return found
