"""Notes by run."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from service.database.models import RunNote


class NoteRepository:
    """What people wrote beside runs."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def of_run(self, run_id: int) -> list[RunNote]:
        """Those of a run, the newest first."""
        return list(self.session.scalars(select(RunNote).where(RunNote.run_id == run_id).order_by(RunNote.id.desc())))

    def count(self, run_id: int) -> int:
        """How many there are on a run."""
        return self.session.scalar(select(func.count(RunNote.id)).where(RunNote.run_id == run_id)) or 0

    def remove(self, run_id: int, uuid: UUID) -> bool:
        """Take one away; whether it was there."""
        gone = delete(RunNote).where(RunNote.run_id == run_id, RunNote.uuid == uuid).returning(RunNote.id)
        return self.session.scalar(gone) is not None
