"""Alerts, channels and messages in a real database, without a trainer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from service.alerts.message import AlertLabel, RunLabel, compose
from service.alerts.repository import AlertRepository
from service.channels.outbox import enqueue
from service.database.engine import reading, writing
from service.database.models import Alert, Channel, Delivery, DeliveryAttempt, Project, Run
from service.detect.judgement import Judgement
from service.judgements.bodies import to_body

SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = to_body(Judgement("repeated_rows", "yes", 2, "Rows repeat.", since_step=(1, 2)))


class DeliveryWorld:
    """One project with one run; makes channels, and alerts whose messages go to all of them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        with writing(engine) as session:
            found = session.scalars(select(Run)).first()
            self.run = found or self._new_run(session)
            self.project_id, self.run_id = self.run.project_id, self.run.id

    @staticmethod
    def _new_run(session: Session) -> Run:
        project = Project(slug="p", created_at=0.0)
        session.add(project)
        session.flush()
        run = Run(uuid=uuid4(), project_id=project.id, name="r", stage="s", role="reproduction", reference="lab",
                  token_offset=0.0, created_at=0.0)  # fmt: skip
        session.add(run)
        session.flush()
        return run

    def channel(self, url: str, kind: str = "webhook", name: str | None = None) -> int:
        with writing(self.engine) as session:
            channel = Channel(uuid=uuid4(), name=name or url, kind=kind, url=url, enabled=True, created_at=0.0,
                              secret=SECRET if kind == "webhook" else None)  # fmt: skip
            session.add(channel)
            session.flush()
            return channel.id

    def alert(self, kinds: Sequence[str] = ("firing",)) -> UUID:
        """An alert with one message of each kind in order, on its way to every channel."""
        uuid, now = uuid4(), time.time()
        with writing(self.engine) as session:
            alert = Alert(uuid=uuid, run_id=self.run_id, family="curve_and_data", state="firing", severity="critical",
                          title="t", rules=["repeated_rows"], judgements={"repeated_rows": BODY}, opened_at=now,
                          opened_step=1, updated_at=now)  # fmt: skip
            session.add(alert)
            session.flush()
            for number, kind in enumerate(kinds, 1):
                AlertRepository(session).add_change(alert, kind, now, {})
                session.flush()
                enqueue(session, alert.id, number, self.project_id, self._message(kind, number, uuid), now)
        return uuid

    def _message(self, kind: str, number: int, alert: UUID) -> dict[str, Any]:
        return compose(
            kind,
            number,
            ["repeated_rows"],
            alert=AlertLabel(alert, "curve_and_data", "firing", ["repeated_rows"], 0.0, 1),
            run=RunLabel(self.run.uuid, "r", "s", "p", "lab", "1"),
            judgements={"repeated_rows": BODY},
            at=0.0,
            base_url="http://pacenote",
        )

    def deliveries(self) -> list[Delivery]:
        with reading(self.engine) as session:
            return list(session.scalars(select(Delivery).order_by(Delivery.id)))

    def attempts(self) -> list[DeliveryAttempt]:
        with reading(self.engine) as session:
            found = select(DeliveryAttempt).order_by(DeliveryAttempt.delivery_id, DeliveryAttempt.number)
            return list(session.scalars(found))

    def change(self, delivery_id: int, **values: Any) -> None:
        with writing(self.engine) as session:
            delivery = session.get_one(Delivery, delivery_id)
            for name, value in values.items():
                setattr(delivery, name, value)

    def change_channel(self, channel_id: int, **values: Any) -> None:
        with writing(self.engine) as session:
            channel = session.get_one(Channel, channel_id)
            for name, value in values.items():
                setattr(channel, name, value)

    def failed(self, delivery_id: int) -> None:
        """One attempt was made and was the last."""
        with writing(self.engine) as session:
            delivery = session.get_one(Delivery, delivery_id)
            delivery.state, delivery.attempts = "failed", 1
            session.add(DeliveryAttempt(delivery_id=delivery_id, number=1, at=0.0, seconds=0.1, status=500, error="no"))

    def get_channel(self, channel_id: int) -> Channel:
        with Session(self.engine, expire_on_commit=False) as session:
            return session.get_one(Channel, channel_id)
