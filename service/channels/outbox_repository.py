"""Messages that wait in the outbox, and the channels they go to: what is due, locked by whoever sends it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, exists, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from service.database.models import Alert, Channel, Delivery, Run
from service.database.models.base import Real


class OutboxRepository:
    """Deliveries by channel and by when they are due. Times in unix seconds."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def channels_for(self, project_id: int, run: UUID, only: int | None = None) -> list[Channel]:
        """Channels, off or on, that take alerts of this run (or `only` that one, if it does)."""
        wanting = (
            select(Channel)
            .outerjoin(Run, Run.id == Channel.run_id)
            .where(
                or_(Channel.project_id.is_(None), Channel.project_id == project_id),
                or_(Channel.run_id.is_(None), Run.uuid == run),
            )
        )
        if only is not None:
            wanting = wanting.where(Channel.id == only)
        return list(self.session.scalars(wanting))

    def ready(self, now: float, busy: Collection[int], limit: int) -> list[int]:
        """Channels that are not `busy`, may take a message now and have one that is due, in no order. One look into an
        index for each channel."""
        return list(self.session.scalars(_READY, {"now": now, "busy": list(busy), "limit": limit}))

    def first_due(self, channel_id: int, now: float) -> Delivery | None:
        """The message that a channel gets next, locked; None where another process was quicker."""
        return self.session.scalars(_FIRST, {"now": now, "channel": channel_id}).one_or_none()

    def locked(self, delivery_id: int) -> Delivery | None:
        """A message, locked; None if it has been deleted."""
        return self.session.scalars(select(Delivery).where(Delivery.id == delivery_id).with_for_update()).one_or_none()

    def counted(self, channel_id: int) -> Channel | None:
        """A channel, locked to count failures; messages to it may be written meanwhile."""
        found = select(Channel).where(Channel.id == channel_id).with_for_update(key_share=True)
        return self.session.scalars(found).one_or_none()

    def disable(self, channel_id: int) -> None:
        """Switch a channel off and give up what it still waits for."""
        self.session.execute(update(Channel).where(Channel.id == channel_id).values(enabled=False))
        waiting = (Delivery.channel_id == channel_id, Delivery.state == "pending")
        self.session.execute(update(Delivery).where(*waiting).values(state="failed", claimed_until=None))

    def replay_failed(self, channel_id: int, since: float, again: Mapping[str, Any]) -> int:
        """Set what is to be set `again` of the messages to a channel, written since then, that were given up; how many
        they are. Their payloads are not read: an outage may have left very many."""
        given_up = (Delivery.channel_id == channel_id, Delivery.state == "failed", Delivery.created_at >= since)
        return len(self.session.scalars(update(Delivery).where(*given_up).values(again).returning(Delivery.id)).all())

    def sent_with(self, leader_id: int) -> list[Delivery]:
        """What goes out inside another message, in order."""
        return list(self.session.scalars(select(Delivery).where(Delivery.sent_with == leader_id).order_by(Delivery.id)))

    def share(self, leader: Delivery) -> None:
        """What became of the first message of a group becomes of the others."""
        others = update(Delivery).where(Delivery.sent_with == leader.id, Delivery.state == "pending")
        self.session.execute(others.values(state=leader.state, delivered_at=leader.delivered_at))

    def fresh(self, leader: Delivery, group_by: str, limit: int) -> list[Delivery]:
        """Messages to the same channel about alerts of the same run or project that nobody has tried to send yet,
        locked, the oldest first."""
        run = self.session.get_one(Run, self.session.get_one(Alert, leader.alert_id).run_id)
        same = Run.id == run.id if group_by == "run" else Run.project_id == run.project_id
        found = (
            select(Delivery)
            .join(Alert, Alert.id == Delivery.alert_id)
            .join(Run, Run.id == Alert.run_id)
            .where(
                Delivery.channel_id == leader.channel_id,
                Delivery.state == "pending",
                Delivery.attempts == 0,
                Delivery.claimed_until.is_(None),
                Delivery.sent_with.is_(None),
                Delivery.id != leader.id,
                same,
            )
            .order_by(Delivery.id)
            .limit(limit)
        )
        return list(self.session.scalars(found.with_for_update(skip_locked=True, of=Delivery)))

    def waiting_of(self, channel_id: int, alert_ids: Collection[int]) -> Sequence[tuple[int, int, int]]:
        """What of these alerts still waits for a channel: alert, number of the change, key."""
        found = select(Delivery.alert_id, Delivery.change_number, Delivery.id).where(
            Delivery.channel_id == channel_id, Delivery.state == "pending", Delivery.alert_id.in_(alert_ids)
        )
        return [(alert, number, key) for alert, number, key in self.session.execute(found)]


def _due() -> tuple[ColumnElement[bool], ...]:
    """A message that may go out at the time `now`."""
    earlier, now = aliased(Delivery), bindparam("now", type_=Real)
    waits = exists().where(
        earlier.alert_id == Delivery.alert_id,
        earlier.channel_id == Delivery.channel_id,
        earlier.change_number < Delivery.change_number,
        earlier.state == "pending",
    )
    return (
        Delivery.state == "pending",
        Delivery.next_attempt_at <= now,
        or_(Delivery.claimed_until.is_(None), Delivery.claimed_until < now),
        Delivery.sent_with.is_(None),
        ~waits,
    )


# Made once: they are asked at every message, and to make them takes longer than to ask them.
_READY = (
    select(Channel.id)
    .where(
        Channel.enabled,
        or_(Channel.paused_until.is_(None), Channel.paused_until <= bindparam("now")),
        Channel.id.not_in(bindparam("busy", expanding=True)),
        exists().where(Delivery.channel_id == Channel.id, *_due()),
    )
    .order_by(func.random())  # else the first ones, where they never run dry, would leave no sender to the others
    .limit(bindparam("limit"))
)
_FIRST = (
    select(Delivery)
    .where(Delivery.channel_id == bindparam("channel"), *_due())
    .order_by(Delivery.next_attempt_at, Delivery.id)
    .limit(1)
    .with_for_update(skip_locked=True, of=Delivery)
)
