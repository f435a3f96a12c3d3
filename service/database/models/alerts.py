"""What was judged, what was raised, and what was sent where."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, String, Text, UniqueConstraint, Uuid, text
from sqlalchemy.orm import Mapped, mapped_column

from service.database.models.base import Base, Key


class JudgementRow(Base):
    """The latest answer of one rule about one run."""

    __tablename__ = "judgement"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), primary_key=True, autoincrement=False)
    rule: Mapped[str] = mapped_column(String(64), primary_key=True)
    family: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(16))
    at_step: Mapped[int] = mapped_column(BigInteger)
    body: Mapped[dict[str, Any]]
    decided_at: Mapped[float]


class VerdictRow(Base):
    """A run's verdict, with the reference version it was reached against."""

    __tablename__ = "verdict"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(String(32))
    body: Mapped[dict[str, Any]]
    decided_at: Mapped[float]


class Alert(Base):
    """One episode of one family of rules on one run."""

    __tablename__ = "alert"
    __table_args__ = (
        Index("ix_alert_run_id_family_state", "run_id", "family", "state"),
        Index("ix_alert_state", "state"),
    )

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    uuid: Mapped[UUID] = mapped_column(Uuid, unique=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    family: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(16))  # firing | acknowledged | resolved
    severity: Mapped[str] = mapped_column(String(16))  # critical | warning | info
    title: Mapped[str] = mapped_column(String(512))
    rules: Mapped[list[Any]]  # names of the rules that joined, in order
    judgements: Mapped[dict[str, Any]]  # rule -> its latest judgement
    opened_at: Mapped[float]
    opened_step: Mapped[int] = mapped_column(BigInteger)
    updated_at: Mapped[float]
    resolved_at: Mapped[float | None]
    muted_until: Mapped[float | None]  # messages wait until then
    assignee: Mapped[str | None] = mapped_column(String(256))
    # Rules that still hold since somebody resolved it: service.alerts.held.
    held: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class AlertChange(Base):
    """One thing that happened to an alert, kept for ever."""

    __tablename__ = "alert_change"

    alert_id: Mapped[int] = mapped_column(ForeignKey("alert.id"), primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16))  # service.alerts.episodes.Kind, service.alerts.hands
    at: Mapped[float]
    body: Mapped[dict[str, Any]]
    event: Mapped[int] = mapped_column(BigInteger, unique=True)  # place among all changes, in the order of commits


class Channel(Base):
    """Where messages go. The kind is chosen, never guessed from the address."""

    __tablename__ = "channel"

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    uuid: Mapped[UUID] = mapped_column(Uuid, unique=True)
    name: Mapped[str] = mapped_column(String(256), unique=True)
    kind: Mapped[str] = mapped_column(String(16))  # service.channels.kinds
    url: Mapped[str] = mapped_column(Text)  # this and the secrets as service.channels.vault seals them
    secret: Mapped[str | None] = mapped_column(Text)
    previous_secret: Mapped[str | None] = mapped_column(Text)  # also signs, until `previous_until`
    previous_until: Mapped[float | None]
    project_id: Mapped[int | None] = mapped_column(ForeignKey("project.id"))  # None: every project
    run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id"))  # None: every run
    rules: Mapped[list[Any] | None]  # None: every rule
    min_severity: Mapped[str] = mapped_column(String(16), default="info", server_default="info")
    enabled: Mapped[bool] = mapped_column(default=True)
    failures: Mapped[int] = mapped_column(default=0, server_default="0")  # attempts in a row that failed
    paused_until: Mapped[float | None]  # the circuit breaker: nothing is sent before
    group_by: Mapped[str] = mapped_column(String(16), default="none", server_default="none")  # none | run | project
    group_wait: Mapped[float] = mapped_column(default=0.0, server_default="0")  # seconds that a first message waits
    repeat_seconds: Mapped[float | None]  # None: what is still firing is not said again
    created_at: Mapped[float]


class Delivery(Base):
    """One message to one channel: the outbox. Written in the alert's own transaction."""

    __tablename__ = "delivery"
    __table_args__ = (
        UniqueConstraint("alert_id", "change_number", "channel_id"),
        Index("ix_delivery_state_next_attempt_at", "state", "next_attempt_at"),
        Index(
            "ix_delivery_channel_id_next_attempt_at",
            "channel_id",
            "next_attempt_at",
            "id",
            sqlite_where=text("state = 'pending'"),
            postgresql_where=text("state = 'pending'"),
        ),
    )

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    uuid: Mapped[UUID] = mapped_column(Uuid, unique=True)  # the webhook-id: receivers drop doubles by it
    alert_id: Mapped[int] = mapped_column(ForeignKey("alert.id"))
    change_number: Mapped[int]
    channel_id: Mapped[int] = mapped_column(ForeignKey("channel.id"))
    state: Mapped[str] = mapped_column(String(16))  # pending | delivered | failed
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[float]
    claimed_until: Mapped[float | None]
    payload: Mapped[dict[str, Any]]  # what is sent, before the channel's own form
    created_at: Mapped[float]
    delivered_at: Mapped[float | None]
    sent_with: Mapped[int | None] = mapped_column(Key)  # id of the delivery whose message carries this one


class DeliveryAttempt(Base):
    """One try to send a message."""

    __tablename__ = "delivery_attempt"

    delivery_id: Mapped[int] = mapped_column(ForeignKey("delivery.id"), primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[float]
    seconds: Mapped[float]
    status: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(String(512))
