"""What was judged last about each run, and which runs have data that was not judged yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, Table, and_, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from service.database.models import JudgementRow, Reference, Run, RunState, RunWork, VerdictRow
from service.detect.judgement import Judgement
from service.detect.rules import data_stopped
from service.judgements.bodies import to_body

TASK = "judge"


@dataclass(frozen=True, slots=True)
class Due:
    """A run with data that was not judged. `done_version` is what was, 0 if nothing."""

    run_id: int
    data_version: int
    done_version: int


class JudgementRepository:
    """Judgements and verdicts by run."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def of_run(self, run_id: int) -> list[JudgementRow]:
        """The latest answer of each rule."""
        found = select(JudgementRow).where(JudgementRow.run_id == run_id).order_by(JudgementRow.rule)
        return list(self.session.scalars(found))

    def of_rule(self, rule: str, run_ids: Sequence[int]) -> dict[int, JudgementRow]:
        """The latest answer of one rule about each of these runs that has one."""
        found = select(JudgementRow).where(JudgementRow.rule == rule, JudgementRow.run_id.in_(run_ids))
        return {row.run_id: row for row in self.session.scalars(found)}

    def verdict(self, run_id: int) -> VerdictRow | None:
        """The run's verdict, None before the first."""
        return self.session.get(VerdictRow, run_id)

    def due(self) -> list[Due]:
        """Reproductions that name a reference and have newer data than was judged, by how long ago they were judged."""
        done = func.coalesce(RunWork.done_version, 0)
        found = (
            select(Run.id, RunState.data_version, done)
            .join(RunState, RunState.run_id == Run.id)
            .outerjoin(RunWork, and_(RunWork.run_id == Run.id, RunWork.task == TASK))
            .where(*_JUDGED, RunState.data_version > done)
            .order_by(func.coalesce(RunWork.done_at, 0.0), Run.id)
        )
        return [Due(*row) for row in self.session.execute(found)]

    def outdated(self) -> list[int]:
        """Runs whose verdict was reached against another version of their reference than the newest, or without any."""
        newest = select(func.max(Reference.id)).group_by(Reference.slug)
        found = (
            select(Run.id, VerdictRow.body, Reference.version)
            .join(VerdictRow, VerdictRow.run_id == Run.id)
            .join(Reference, Reference.slug == Run.reference)
            .where(*_JUDGED, Reference.id.in_(newest))
        )
        return [run_id for run_id, body, version in self.session.execute(found) if body.get("version") != version]

    def watched(self) -> list[int]:
        """Runs that a rule on the service's clock may find silent although nothing new comes of them."""
        found = select(JudgementRow.run_id, JudgementRow.body).where(
            JudgementRow.rule == data_stopped.RULE, JudgementRow.state != "yes"
        )
        return [run_id for run_id, body in self.session.execute(found) if body.get("limit") is not None]

    def newest_reference(self) -> int:
        """A number that grows when a reference is installed."""
        return self.session.scalar(select(func.max(Reference.id))) or 0

    def work(self, run_id: int) -> RunWork | None:
        """The run's record of judging, None before the first time."""
        return self.session.get(RunWork, (run_id, TASK))

    def add_work(self, run_id: int) -> None:
        """Make the record of judging if it is missing. Commit at once: others wait for it."""
        values = {"run_id": run_id, "task": TASK, "done_version": 0}
        postgresql = self.session.get_bind().dialect.name == "postgresql"
        insert = postgresql_insert(RunWork) if postgresql else sqlite_insert(RunWork)
        self.session.execute(insert.values(values).on_conflict_do_nothing())

    def lock_works(self, run_ids: Sequence[int]) -> dict[int, RunWork]:
        """The records of judging of runs, locked until the transaction ends; those that another one holds are left out,
        and those that are missing."""
        found = select(RunWork).where(RunWork.run_id.in_(run_ids), RunWork.task == TASK).order_by(RunWork.run_id)
        return {work.run_id: work for work in self.session.scalars(found.with_for_update(skip_locked=True))}

    def unknown(self, run_ids: Sequence[int]) -> list[int]:
        """Runs that have no record of judging."""
        found = select(RunWork.run_id).where(RunWork.run_id.in_(run_ids), RunWork.task == TASK)
        known = set(self.session.scalars(found))
        return [run_id for run_id in run_ids if run_id not in known]

    def store(self, run_id: int, judgements: Sequence[Judgement], families: Mapping[str, str], now: float) -> None:
        """Keep the answers in place of the ones before."""
        connection = self.session.connection()
        before = set(connection.execute(_RULES, {"run": run_id}).scalars())
        self.store_changed([(run_id, j) for j in judgements if j.rule in before], families, now)
        new = [_answer(run_id, j, families, now) for j in judgements if j.rule not in before]
        if new:
            renamed = [{"run_id": answer.pop("run"), "rule": answer.pop("named"), **answer} for answer in new]
            connection.execute(insert(JudgementRow), renamed)
        gone = before - {judgement.rule for judgement in judgements}  # rules that are no longer asked
        if gone:
            connection.execute(delete(JudgementRow).where(JudgementRow.run_id == run_id, JudgementRow.rule.in_(gone)))

    def store_changed(self, changed: Sequence[tuple[int, Judgement]], families: Mapping[str, str], now: float) -> None:
        """Keep answers, each with its run, in place of those that the same rules gave before."""
        if changed:
            answers = [_answer(run_id, judgement, families, now) for run_id, judgement in changed]
            self.session.connection().execute(_ANSWER, answers)

    def still(self, run_ids: Sequence[int], now: float) -> None:
        """The verdicts of these runs were reached again just as they stand."""
        if run_ids:
            self.session.connection().execute(_STILL, {"runs": run_ids, "now": now})

    def store_verdict(self, run_id: int, state: str, body: Mapping[str, Any], now: float) -> bool:
        """Keep the verdict; whether its state is another one than before."""
        row = self.verdict(run_id)
        before = row.state if row else None
        if row is None:
            row = VerdictRow(run_id=run_id)
            self.session.add(row)
        row.state, row.body, row.decided_at = state, dict(body), now
        return before != state


_JUDGED = (Run.role == "reproduction", Run.reference.is_not(None), Run.reference != "")


def _answer(run_id: int, judgement: Judgement, families: Mapping[str, str], now: float) -> dict[str, Any]:
    return {
        "run": run_id,
        "named": judgement.rule,
        "family": families[judgement.rule],
        "state": judgement.state,
        "at_step": judgement.at_step,
        "body": to_body(judgement),
        "decided_at": now,
    }


_VERDICT: Table = VerdictRow.__table__  # pyright: ignore[reportAssignmentType]
_SOME: BindParameter[Sequence[int]] = bindparam("runs", expanding=True)
_STILL = update(_VERDICT).where(_VERDICT.c.run_id.in_(_SOME)).values(decided_at=bindparam("now"))
_TABLE: Table = JudgementRow.__table__  # pyright: ignore[reportAssignmentType]
_RULES = select(_TABLE.c.rule).where(_TABLE.c.run_id == bindparam("run"))
_ANSWER = (
    update(_TABLE)
    .where(_TABLE.c.run_id == bindparam("run"), _TABLE.c.rule == bindparam("named"))
    .values({name: bindparam(name) for name in ("family", "state", "at_step", "body", "decided_at")})
)
