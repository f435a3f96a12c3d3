"""What people have said about judging: settings of rules, declared deviations, and every change of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint, Uuid, text
from sqlalchemy.orm import Mapped, mapped_column

from service.database.models.base import Base, Key


class RuleSetting(Base):
    """One rule's settings in one project (`run_id` None) or of one run. NULL: the next wider scope decides."""

    __tablename__ = "rule_setting"
    __table_args__ = (
        UniqueConstraint("run_id", "rule"),
        Index(
            "ix_rule_setting_project_id_rule",
            "project_id",
            "rule",
            unique=True,
            sqlite_where=text("run_id IS NULL"),
            postgresql_where=text("run_id IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id"))
    rule: Mapped[str] = mapped_column(String(64))
    tolerance: Mapped[float | None]  # in the rule's own unit
    minimum_evidence: Mapped[int | None] = mapped_column(BigInteger)  # observations
    enabled: Mapped[bool | None]
    muted: Mapped[bool | None]
    muted_until: Mapped[float | None]  # None where `muted`: for ever
    set_by: Mapped[str] = mapped_column(String(256))
    reason: Mapped[str] = mapped_column(Text)
    set_at: Mapped[float]


class DeclaredDeviation(Base):
    """A known difference of a run from its reference's recipe, with what it may cost and where it ends."""

    __tablename__ = "deviation"

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    uuid: Mapped[UUID] = mapped_column(Uuid, unique=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), index=True)
    description: Mapped[str] = mapped_column(Text)
    item: Mapped[str] = mapped_column(String(64))  # of the recipe
    budgets: Mapped[dict[str, Any]]  # metric -> signed budget, in the metric's unit
    from_step: Mapped[int] = mapped_column(BigInteger)
    from_tokens: Mapped[float | None]
    end_step: Mapped[int | None] = mapped_column(BigInteger)
    end_tokens: Mapped[float | None]
    end_at: Mapped[float | None]
    declared_by: Mapped[str] = mapped_column(String(256))
    declared_at: Mapped[float]


class JudgingChange(Base):
    """One change of a setting or a deviation, kept for ever. `old` and `new` are None where there was or is none."""

    __tablename__ = "judging_change"
    __table_args__ = (Index("ix_judging_change_project_id_id", "project_id", "id"),)

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id"))  # None: the whole project
    kind: Mapped[str] = mapped_column(String(16))  # rule | deviation
    subject: Mapped[str] = mapped_column(String(64))  # the rule's name, or the deviation's id
    at: Mapped[float]
    by: Mapped[str] = mapped_column(String(256))
    reason: Mapped[str] = mapped_column(Text)
    old: Mapped[dict[str, Any] | None]
    new: Mapped[dict[str, Any] | None]
