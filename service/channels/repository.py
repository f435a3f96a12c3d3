"""Channels, and what was sent to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session

from service.database.models import Alert, Channel, Delivery, DeliveryAttempt, Project
from service.runs.cursor import decode, encode


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery with the alert it is about and the channel it goes to."""

    delivery: Delivery
    alert: Alert
    channel: Channel


class ChannelRepository:
    """Channels by name and id, their deliveries by age."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def all(self) -> list[tuple[Channel, str | None]]:
        """Every channel with the slug of its project, by name."""
        found = select(Channel, Project.slug).outerjoin(Project).order_by(Channel.name)
        return [(channel, slug) for channel, slug in self.session.execute(found)]

    def by_uuid(self, uuid: UUID) -> tuple[Channel, str | None] | None:
        """A channel with the slug of its project."""
        found = select(Channel, Project.slug).outerjoin(Project).where(Channel.uuid == uuid)
        row = self.session.execute(found).one_or_none()
        return None if row is None else (row[0], row[1])

    def project(self, slug: str) -> Project | None:
        """The project with this slug."""
        return self.session.scalars(select(Project).where(Project.slug == slug)).one_or_none()

    def delete(self, channel: Channel) -> None:
        """Remove a channel with everything that was sent to it or waits for it."""
        sent = select(Delivery.id).where(Delivery.channel_id == channel.id)
        self.session.execute(delete(DeliveryAttempt).where(DeliveryAttempt.delivery_id.in_(sent)))
        self.session.execute(delete(Delivery).where(Delivery.channel_id == channel.id))
        self.session.delete(channel)

    def deliveries(self, channel_id: int, cursor: str | None, limit: int) -> tuple[list[DeliveryRow], str | None]:
        """A channel's deliveries, the newest first, and the cursor of the next page.

        Raises:
            InvalidError: the cursor was not made here.
        """
        query = _deliveries().where(Delivery.channel_id == channel_id).order_by(Delivery.id.desc()).limit(limit + 1)
        if cursor is not None:
            query = query.where(Delivery.id < decode(cursor)[1])
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


def _deliveries() -> Select[Delivery, Alert, Channel]:
    return select(Delivery, Alert, Channel).join(Alert).join(Channel)
