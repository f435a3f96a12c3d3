"""Published runs: one row per version of a bundle, and the runs that hold its curves."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.database.models.base import Base, Key


class Reference(Base):
    """One version of one reference. `description` is reference.toml as JSON; versions are never edited in place."""

    __tablename__ = "reference"
    __table_args__ = (UniqueConstraint("slug", "version"),)

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    slug: Mapped[str] = mapped_column(String(256))
    version: Mapped[str] = mapped_column(String(64))
    title: Mapped[str] = mapped_column(String(512))
    digest: Mapped[str] = mapped_column(String(64))  # SHA-256 of the bundle's content
    description: Mapped[dict[str, Any]]
    installed_at: Mapped[float]


class ReferenceRun(Base):
    """Which run holds a stage of a reference, or of one of its healthy siblings."""

    __tablename__ = "reference_run"

    reference_id: Mapped[int] = mapped_column(ForeignKey("reference.id"), primary_key=True, autoincrement=False)
    stage: Mapped[str] = mapped_column(String(256), primary_key=True)
    sibling: Mapped[str] = mapped_column(String(256), primary_key=True)  # "" for the reference itself
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
