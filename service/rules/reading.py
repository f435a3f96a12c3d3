"""What counts for each rule of a run, read from the database."""

from __future__ import annotations

from sqlalchemy.orm import Session

from service.database.models import Project, Run
from service.rules.effective import Effective, effective
from service.rules.repository import Scope, SettingRepository


def settings_in_force(session: Session, run: Run) -> dict[str, Effective]:
    """The settings that count for a run, for each rule that has any; {} for a run that is not stored."""
    rows = SettingRepository(session).in_force(Scope(run.project_id, run.id))
    return effective(rows, session.get_one(Project, run.project_id).slug) if rows else {}
