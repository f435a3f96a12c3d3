"""What the API says about notes."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from service.database.models import RunNote
from service.rules.schemas import Who, Words
from service.runs.fields import Time


class NewNote(BaseModel):
    """A note on a run, at a step or on the run as a whole."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[Words, Field(min_length=1, max_length=4000)]
    step: Annotated[int, Field(ge=0, le=2**53 - 1)] | None = None
    by: Who


class NoteAnswer(BaseModel):
    """A note as it was written."""

    id: UUID
    text: str
    step: int | None
    by: str
    at: Time


class NoteList(BaseModel):
    """The notes on a run, the newest first."""

    run: UUID
    items: list[NoteAnswer]


def note_answer(row: RunNote) -> NoteAnswer:
    """A note as the API gives it."""
    return NoteAnswer(id=row.uuid, text=row.text, step=row.step, by=row.written_by, at=row.at)
