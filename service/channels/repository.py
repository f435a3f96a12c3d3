"""Channels, and what was sent to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy import Select, delete, func, select
from sqlalchemy.orm import Session

from service.database.models import Alert, Channel, Delivery, DeliveryAttempt, Project, Run
from service.runs.cursor import decode, encode


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery with the alert it is about and the channel it goes to."""

    delivery: Delivery
    alert: Alert
    channel: Channel


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """A channel with the slug of its project and the id of its run, None where it takes all; how many messages wait for
    it, and how many were given up."""

    channel: Channel
    project: str | None
    run: UUID | None
    waiting: int = 0
    failed: int = 0


class ChannelRepository:
    """Channels by name and id, their deliveries by age."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def all(self) -> list[ChannelRow]:
        """Every channel, by name."""
        return self._counted([ChannelRow(*row) for row in self.session.execute(_channels().order_by(Channel.name))])

    def by_uuid(self, uuid: UUID) -> ChannelRow | None:
        """One channel."""
        row = self.session.execute(_channels().where(Channel.uuid == uuid)).one_or_none()
        return None if row is None else self._counted([ChannelRow(*row)])[0]

    def _counted(self, rows: list[ChannelRow]) -> list[ChannelRow]:
        found = (
            select(Delivery.channel_id, Delivery.state, func.count())
            .where(Delivery.channel_id.in_([row.channel.id for row in rows]), Delivery.state.in_(("pending", "failed")))
            .group_by(Delivery.channel_id, Delivery.state)
        )
        counts = {(channel, state): count for channel, state, count in self.session.execute(found)}
        return [
            replace(
                row,
                waiting=counts.get((row.channel.id, "pending"), 0),
                failed=counts.get((row.channel.id, "failed"), 0),
            )
            for row in rows
        ]

    def run(self, uuid: UUID) -> Run | None:
        """The run with this id."""
        return self.session.scalars(select(Run).where(Run.uuid == uuid)).one_or_none()

    def project(self, slug: str) -> Project | None:
        """The project with this slug."""
        return self.session.scalars(select(Project).where(Project.slug == slug)).one_or_none()

    def delete(self, channel: Channel) -> None:
        """Remove a channel with everything that was sent to it or waits for it."""
        sent = select(Delivery.id).where(Delivery.channel_id == channel.id)
        self.session.execute(delete(DeliveryAttempt).where(DeliveryAttempt.delivery_id.in_(sent)))
        self.session.execute(delete(Delivery).where(Delivery.channel_id == channel.id))
        self.session.delete(channel)

    def deliveries(
        self, channel_id: int, cursor: str | None, limit: int, state: str | None = None
    ) -> tuple[list[DeliveryRow], str | None]:
        """A channel's deliveries (in one state), the newest first, and the cursor of the next page.

        Raises:
            InvalidError: the cursor was not made here.
        """
        query = _deliveries().where(Delivery.channel_id == channel_id).order_by(Delivery.id.desc()).limit(limit + 1)
        if cursor is not None:
            query = query.where(Delivery.id < decode(cursor)[1])
        if state is not None:
            query = query.where(Delivery.state == state)
        rows = [DeliveryRow(*row) for row in self.session.execute(query)]
        following = encode((0.0, rows[limit - 1].delivery.id)) if len(rows) > limit else None
        return rows[:limit], following

    def deliveries_of_alert(self, alert_id: int) -> list[DeliveryRow]:
        """What an alert sent, in order of its changes."""
        query = _deliveries().where(Delivery.alert_id == alert_id).order_by(Delivery.change_number, Channel.name)
        return [DeliveryRow(*row) for row in self.session.execute(query)]

    def delivery(self, uuid: UUID) -> DeliveryRow | None:
        """One delivery by its id, which is the message's id too."""
        row = self.session.execute(_deliveries().where(Delivery.uuid == uuid)).one_or_none()
        return None if row is None else DeliveryRow(*row)

    def attempts(self, delivery_ids: Sequence[int]) -> dict[int, list[DeliveryAttempt]]:
        """The attempts at these deliveries, in order."""
        found = (
            select(DeliveryAttempt)
            .where(DeliveryAttempt.delivery_id.in_(delivery_ids))
            .order_by(DeliveryAttempt.delivery_id, DeliveryAttempt.number)
        )
        grouped: dict[int, list[DeliveryAttempt]] = {delivery_id: [] for delivery_id in delivery_ids}
        for attempt in self.session.scalars(found):
            grouped[attempt.delivery_id].append(attempt)
        return grouped


def _channels() -> Select[Channel, str, UUID]:
    return (
        select(Channel, Project.slug, Run.uuid)
        .outerjoin(Project, Project.id == Channel.project_id)
        .outerjoin(Run, Run.id == Channel.run_id)
    )


def _deliveries() -> Select[Delivery, Alert, Channel]:
    return select(Delivery, Alert, Channel).join(Alert).join(Channel)
