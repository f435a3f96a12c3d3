"""Checkpoints that trainers told of, and on how many devices they ran."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.database.models import Event, RunState, Segment


class RecoveryRepository:
    """What a restart needs to know, by run and segment."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def checkpoint_events(self, segment_ids: Collection[int]) -> list[Event]:
        """Events of checkpoints in these segments, by step."""
        found = select(Event).where(Event.segment_id.in_(segment_ids), Event.kind == "checkpoint")
        return list(self.session.scalars(found.order_by(Event.step, Event.id)))

    def last_step(self, run_id: int) -> int:
        """The newest step that came, 0 before the first."""
        state = self.session.get(RunState, run_id)
        return (state.last_step or 0) if state is not None else 0

    def devices(self, run_id: int) -> int:
        """Devices of the newest start of the trainer, 0 where it did not say."""
        found = select(Segment.topology).where(Segment.run_id == run_id, Segment.kind == "trainer")
        newest = found.order_by(Segment.started_at.desc(), Segment.id.desc()).limit(1)
        devices: Any = (self.session.scalar(newest) or {}).get("devices")
        return devices if isinstance(devices, int) and devices > 0 else 0
