"""Settings of rules in the database, and the record of every change of how runs are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from service.database.models import JudgingChange, Project, RuleSetting, Run, RunWork
from service.runs.cursor import decode, encode

TASK = "judge"


@dataclass(frozen=True, slots=True)
class Scope:
    """A project, or one run in it (`run_id` None: the whole project)."""

    project_id: int
    run_id: int | None = None


class SettingRepository:
    """Settings by scope and rule. Every change is recorded in the same transaction."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def project(self, slug: str) -> Project | None:
        """The project with this slug."""
        return self.session.scalars(select(Project).where(Project.slug == slug)).one_or_none()

    def in_force(self, scope: Scope) -> list[RuleSetting]:
        """What counts in a scope: the project's settings and, of a run, its own."""
        own = RuleSetting.run_id.is_(None)
        if scope.run_id is not None:
            own = or_(own, RuleSetting.run_id == scope.run_id)
        found = select(RuleSetting).where(RuleSetting.project_id == scope.project_id, own)
        return list(self.session.scalars(found.order_by(RuleSetting.rule, RuleSetting.id)))

    def one(self, scope: Scope, rule: str) -> RuleSetting | None:
        """What was set in exactly this scope."""
        found = select(RuleSetting).where(RuleSetting.project_id == scope.project_id, RuleSetting.rule == rule)
        here = RuleSetting.run_id.is_(None) if scope.run_id is None else RuleSetting.run_id == scope.run_id
        return self.session.scalars(found.where(here)).one_or_none()

    def lock(self, scope: Scope) -> None:
        """Let one writer at a time change how a project is judged, so that changes are numbered as they commit."""
        self.session.execute(select(Project.id).where(Project.id == scope.project_id).with_for_update())

    def record(
        self,
        scope: Scope,
        kind: str,
        subject: str,
        *,
        by: str,
        reason: str,
        at: float,
        old: Mapping[str, Any] | None,
        new: Mapping[str, Any] | None,
    ) -> JudgingChange:
        """Append a change; the scope must be locked."""
        change = JudgingChange(
            project_id=scope.project_id,
            run_id=scope.run_id,
            kind=kind,
            subject=subject,
            at=at,
            by=by,
            reason=reason,
            old=None if old is None else dict(old),
            new=None if new is None else dict(new),
        )
        self.session.add(change)
        self.session.flush()
        return change

    def history(
        self,
        scope: Scope,
        *,
        kind: str,
        subject: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> tuple[list[JudgingChange], str | None]:
        """Changes that concern a scope, the newest first; those of a run's project are among the run's.

        Raises:
            InvalidError: the cursor was not made here.
        """
        query = select(JudgingChange).where(JudgingChange.project_id == scope.project_id, JudgingChange.kind == kind)
        if scope.run_id is None:
            query = query.where(JudgingChange.run_id.is_(None))
        else:
            query = query.where(or_(JudgingChange.run_id.is_(None), JudgingChange.run_id == scope.run_id))
        if subject is not None:
            query = query.where(JudgingChange.subject == subject)
        if cursor is not None:
            query = query.where(JudgingChange.id < decode(cursor)[1])
        rows = list(self.session.scalars(query.order_by(JudgingChange.id.desc()).limit(limit + 1)))
        return rows[:limit], encode((0.0, rows[limit - 1].id)) if len(rows) > limit else None

    def newest_of(self, scope: Scope) -> int:
        """Number of the newest change that concerns a run, 0 if there is none."""
        concerns = or_(JudgingChange.run_id.is_(None), JudgingChange.run_id == scope.run_id)
        newest = select(func.max(JudgingChange.id)).where(JudgingChange.project_id == scope.project_id, concerns)
        return self.session.scalar(newest) or 0

    def state(self) -> tuple[int, int]:
        """A value that differs whenever a change was recorded."""
        count, newest = self.session.execute(select(func.count(JudgingChange.id), func.max(JudgingChange.id))).one()
        return count, newest or 0

    def unsettled(self) -> list[int]:
        """Judged runs that were judged before the newest change that concerns them."""
        concerns = or_(JudgingChange.run_id.is_(None), JudgingChange.run_id == Run.id)
        found = (
            select(Run.id)
            .join(RunWork, and_(RunWork.run_id == Run.id, RunWork.task == TASK))
            .join(JudgingChange, and_(JudgingChange.project_id == Run.project_id, concerns))
            .where(*_JUDGED, RunWork.done_version > 0, JudgingChange.id > func.coalesce(RunWork.done_change, 0))
            .distinct()
        )
        return list(self.session.scalars(found))

    def unmuted(self, now: float) -> list[int]:
        """Judged runs for which a mute has ended by itself since they were judged last."""
        concerns = or_(RuleSetting.run_id.is_(None), RuleSetting.run_id == Run.id)
        ended = and_(RuleSetting.muted_until <= now, RuleSetting.muted_until > RunWork.done_at)
        found = (
            select(Run.id)
            .join(RunWork, and_(RunWork.run_id == Run.id, RunWork.task == TASK))
            .join(RuleSetting, and_(RuleSetting.project_id == Run.project_id, concerns))
            .where(*_JUDGED, RunWork.done_version > 0, ended)
            .distinct()
        )
        return list(self.session.scalars(found))

    def names_of(self, run_ids: Sequence[int]) -> dict[int, Run]:
        """Runs by key."""
        return {run.id: run for run in self.session.scalars(select(Run).where(Run.id.in_(run_ids)))}


_JUDGED = (Run.role == "reproduction", Run.reference.is_not(None), Run.reference != "")
