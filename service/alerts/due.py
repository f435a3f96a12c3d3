"""What time alone does to alerts: mutes end, and channels that ask for it hear again of what still fires.

Several processes may do this on one database. Each alert is locked and looked at again before anything is written, so
that a mute ends once and a reminder is written once.
"""

from __future__ import annotations

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from service.alerts.announce import announce
from service.alerts.hands import end_mute
from service.alerts.record import Recorded, episode_of
from service.alerts.repository import OPEN, AlertRepository, AlertRow
from service.broker import Broker
from service.database.engine import reading, writing
from service.database.models import Channel

AT_ONCE = 100  # alerts whose turn it is that are seen to at one look


def act_on_time(engine: Engine, broker: Broker, base_url: str, now: float) -> int:
    """End the mutes that are over and write the reminders that are due; how many changes that made."""
    with reading(engine) as session:
        repository = AlertRepository(session)
        over, unheard = repository.mutes_over(now, AT_ONCE), repository.unheard(now, AT_ONCE)
    count = 0
    for alert_id in over:
        with writing(engine) as session:
            done = _end_mute(session, alert_id, now, base_url)
        count += _publish(broker, done)
    for alert_id, channel_id in unheard:
        with writing(engine) as session:
            done = _repeat(session, alert_id, channel_id, now, base_url)
        count += _publish(broker, done)
    return count


def _end_mute(session: Session, alert_id: int, now: float, base_url: str) -> tuple[AlertRow, Recorded] | None:
    repository = AlertRepository(session)
    row = repository.locked(alert_id)
    if row is None or row.alert.muted_until is None or row.alert.muted_until > now or row.alert.state not in OPEN:
        return None
    reason = "the mute is over"
    number = repository.add_change(row.alert, "unmuted", now, {"reason": reason})
    end_mute(session, row, number, now=now, base_url=base_url, reason=reason)
    return row, _recorded(row, "unmuted", number)


def _repeat(
    session: Session, alert_id: int, channel_id: int, now: float, base_url: str
) -> tuple[AlertRow, Recorded] | None:
    repository = AlertRepository(session)
    row = repository.locked(alert_id)
    if row is None or not repository.unheard(now, 1, pair=(alert_id, channel_id)):
        return None
    active = episode_of(repository, row.alert).active
    if not active:
        return None
    name = session.get_one(Channel, channel_id).name
    number = repository.add_change(row.alert, "repeated", now, {"rules": list(active), "channel": name})
    announce(session, row, "repeated", number, active, now=now, base_url=base_url, only_channel=channel_id)
    return row, _recorded(row, "repeated", number)


def _recorded(row: AlertRow, kind: str, number: int) -> Recorded:
    return Recorded(row.alert.uuid, row.alert.family, kind, row.alert.state, 0, number)


def _publish(broker: Broker, done: tuple[AlertRow, Recorded] | None) -> int:
    if done is None:
        return 0
    row, change = done
    subject = {"run": str(row.run.uuid), "project": row.project, "alert": str(change.alert)}
    body = {"family": change.family, "change": change.kind, "state": change.state, "number": change.number}
    broker.publish("alert", subject | body)
    return 1
