"""Projects, runs, segments, and what the workers have done with a run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, String, Text, UniqueConstraint, Uuid
from sqlalchemy.orm import Mapped, mapped_column

from service.database.models.base import Base, Key


class Project(Base):
    """One model being reproduced."""

    __tablename__ = "project"

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    slug: Mapped[str] = mapped_column(String(256), unique=True)
    created_at: Mapped[float]


class Run(Base):
    """One stage of one training. `uuid` is the public id, made from (project, name, stage)."""

    __tablename__ = "run"
    __table_args__ = (
        UniqueConstraint("project_id", "name", "stage"),
        Index("ix_run_project_id_created_at", "project_id", "created_at"),
    )

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    uuid: Mapped[UUID] = mapped_column(Uuid, unique=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str] = mapped_column(String(256))
    stage: Mapped[str] = mapped_column(String(256))
    role: Mapped[str] = mapped_column(String(16))  # reference | reproduction
    reference: Mapped[str | None] = mapped_column(String(256))  # slug of the reference it is compared with
    token_offset: Mapped[float] = mapped_column(default=0.0)
    forked_from: Mapped[UUID | None] = mapped_column(Uuid)
    forked_at_step: Mapped[int | None] = mapped_column(BigInteger)
    data: Mapped[dict[str, Any] | None]  # {"rows": …, "epochs": …} as declared by the trainer
    created_at: Mapped[float]
    archived_at: Mapped[float | None]  # out of the way of lists since then; judged as ever


class RunNote(Base):
    """What a person has written beside a run."""

    __tablename__ = "run_note"

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    uuid: Mapped[UUID] = mapped_column(Uuid, unique=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), index=True)
    step: Mapped[int | None] = mapped_column(BigInteger)  # None: of the run as a whole
    written_by: Mapped[str] = mapped_column(String(256))
    text: Mapped[str] = mapped_column(Text)
    at: Mapped[float]


class RunState(Base):
    """How far a run's data has come. Written with every batch; `data_version` grows by one each time."""

    __tablename__ = "run_state"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), primary_key=True, autoincrement=False)
    data_version: Mapped[int] = mapped_column(BigInteger, default=0)
    last_data_at: Mapped[float | None]
    last_step: Mapped[int | None] = mapped_column(BigInteger)
    last_tokens: Mapped[float | None]  # within the stage
    journal_points: Mapped[int] = mapped_column(BigInteger, default=0)  # not sealed yet
    journal_steps: Mapped[int] = mapped_column(BigInteger, default=0)
    journal_rows: Mapped[int] = mapped_column(BigInteger, default=0)


class RunWork(Base):
    """What a background task has done with a run. Workers lock these rows, never those that ingest writes."""

    __tablename__ = "run_work"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), primary_key=True, autoincrement=False)
    task: Mapped[str] = mapped_column(String(16), primary_key=True)  # seal | judge
    done_version: Mapped[int] = mapped_column(BigInteger, default=0)
    done_at: Mapped[float | None]
    done_segment: Mapped[int | None] = mapped_column(BigInteger)  # newest segment that was there
    done_change: Mapped[int | None] = mapped_column(BigInteger)  # newest change of settings that was there


class Segment(Base):
    """One start of a trainer process, an evaluator or an import inside a run."""

    __tablename__ = "segment"
    __table_args__ = (Index("ix_segment_run_id_started_at", "run_id", "started_at"),)

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    uuid: Mapped[UUID] = mapped_column(Uuid, unique=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    kind: Mapped[str] = mapped_column(String(16))  # trainer | evaluator | import
    start_step: Mapped[int] = mapped_column(BigInteger)  # updates already made
    start_tokens: Mapped[float | None]
    tokens_per_step: Mapped[int | None] = mapped_column(BigInteger)
    ramp: Mapped[list[Any] | None]  # [[from_step, tokens_per_step], …]
    topology: Mapped[dict[str, Any]]
    config: Mapped[dict[str, Any]]
    versions: Mapped[dict[str, Any]]
    sample_rows: Mapped[int] = mapped_column(BigInteger, default=1024)
    started_at: Mapped[float]  # by the service's clock: the sender's time plus its offset
    finished_at: Mapped[float | None]
    digest: Mapped[bytes] = mapped_column(LargeBinary(16))  # of the body that made it


class Event(Base):
    """Something a trainer says beside numbers: a checkpoint, a change of config, a note."""

    __tablename__ = "event"
    __table_args__ = (Index("ix_event_run_id_step", "run_id", "step"),)

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    segment_id: Mapped[int] = mapped_column(ForeignKey("segment.id"))
    step: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str] = mapped_column(String(32))
    value: Mapped[dict[str, Any]]  # {"value": anything}
    at: Mapped[float]
