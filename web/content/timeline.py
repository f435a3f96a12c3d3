"""What happened on a run, in order of time: what its trainer said, alerts, and what people wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from service.alerts.schemas import AlertSummary
from service.notes.repository import NoteRepository
from service.runs.repository import RunRepository

MOST = 60  # lines, the newest
LONGEST = 400  # characters of an event's value


@dataclass(frozen=True, slots=True)
class Happening:
    """One line. `kind` is an event's own, "alert", "resolved" or "note"; `link` is the id of an alert, `note` of a
    note that can be taken away; `by` who wrote it."""

    at: float
    step: int | None
    kind: str
    text: str
    by: str = ""
    link: UUID | None = None
    note: UUID | None = None


def timeline(session: Session, run_id: int, alerts: Sequence[AlertSummary]) -> list[Happening]:
    """The newest happenings, the newest first."""
    events = [
        Happening(event.at, event.step, event.kind, _text(event.value.get("value")))
        for event in RunRepository(session).newest_events(run_id, MOST)
    ]
    notes = [
        Happening(note.at, note.step, "note", note.text, by=note.written_by, note=note.uuid)
        for note in NoteRepository(session).of_run(run_id)
    ]
    raised = [Happening(a.opened_at, a.opened_step, "alert", a.title, link=a.id) for a in alerts]
    ended = [
        Happening(a.resolved_at, None, "resolved", a.title, link=a.id) for a in alerts if a.resolved_at is not None
    ]
    found = [*events, *notes, *raised, *ended]
    return sorted(found, key=lambda line: line.at, reverse=True)[:MOST]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
