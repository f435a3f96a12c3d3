"""What time alone does to alerts: mutes end, and channels that ask for it hear again of what still fires.

Several processes may do this on one database. Each alert is locked and looked at again before anything is written, so
that a mute ends once and a reminder is written once.
"""

from __future__ import annotations

from sqlalchemy import Engine, Select, and_, exists, func, select
from sqlalchemy.orm import Session

from service.alerts.announce import announce
from service.alerts.hands import end_mute
from service.alerts.record import Recorded, episode_of
from service.alerts.repository import OPEN, AlertRepository, AlertRow
from service.broker import Broker
from service.database.engine import reading, writing
from service.database.models import Alert, Channel, Delivery, Project, Run

AT_ONCE = 100  # alerts whose turn it is that are seen to at one look


def act_on_time(engine: Engine, broker: Broker, base_url: str, now: float) -> int:
    """End the mutes that are over and write the reminders that are due; how many changes that made."""
    with reading(engine) as session:
        over = list(session.scalars(_muted_until(now).limit(AT_ONCE)))
        unheard = [(alert_id, channel_id) for alert_id, channel_id in session.execute(_unheard(now).limit(AT_ONCE))]
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


def _muted_until(now: float) -> Select[int]:
    return select(Alert.id).where(Alert.state.in_(OPEN), Alert.muted_until <= now)


def _unheard(now: float) -> Select[int, int]:
    """Pairs of a firing alert and a channel whose last message about it is older than the channel's interval."""
    of_pair = and_(Delivery.alert_id == Alert.id, Delivery.channel_id == Channel.id)
    last = select(func.max(func.coalesce(Delivery.delivered_at, Delivery.created_at))).where(of_pair)
    waiting = exists().where(of_pair, Delivery.state == "pending")
    heard = exists().where(of_pair)
    return (
        select(Alert.id, Channel.id)
        .join(Channel, and_(Channel.enabled, Channel.repeat_seconds.is_not(None)))
        .where(
            Alert.state == "firing",
            Alert.muted_until.is_(None),
            heard,
            ~waiting,
            last.scalar_subquery() + Channel.repeat_seconds <= now,
        )
        .order_by(Alert.id, Channel.id)
    )


def _locked(session: Session, alert_id: int) -> AlertRow | None:
    query = (
        select(Alert, Run, Project.slug)
        .join(Run, Alert.run_id == Run.id)
        .join(Project, Run.project_id == Project.id)
        .where(Alert.id == alert_id)
    )
    found = session.execute(query.with_for_update(of=Alert, skip_locked=True)).one_or_none()
    return None if found is None else AlertRow(*found)


def _end_mute(session: Session, alert_id: int, now: float, base_url: str) -> tuple[AlertRow, Recorded] | None:
    row = _locked(session, alert_id)
    if row is None or row.alert.muted_until is None or row.alert.muted_until > now or row.alert.state not in OPEN:
        return None
    reason = "the mute is over"
    number = AlertRepository(session).add_change(row.alert, "unmuted", now, {"reason": reason})
    end_mute(session, row, number, now=now, base_url=base_url, reason=reason)
    return row, _recorded(row, "unmuted")


def _repeat(
    session: Session, alert_id: int, channel_id: int, now: float, base_url: str
) -> tuple[AlertRow, Recorded] | None:
    row = _locked(session, alert_id)
    pair = session.execute(_unheard(now).where(Alert.id == alert_id, Channel.id == channel_id)).first()
    if row is None or pair is None:
        return None
    repository = AlertRepository(session)
    active = episode_of(repository, row.alert).active
    if not active:
        return None
    name = session.get_one(Channel, channel_id).name
    number = repository.add_change(row.alert, "repeated", now, {"rules": list(active), "channel": name})
    announce(session, row, "repeated", number, active, now=now, base_url=base_url, only_channel=channel_id)
    return row, _recorded(row, "repeated")


def _recorded(row: AlertRow, kind: str) -> Recorded:
    return Recorded(row.alert.uuid, row.alert.family, kind, row.alert.state, 0)


def _publish(broker: Broker, done: tuple[AlertRow, Recorded] | None) -> int:
    if done is None:
        return 0
    row, change = done
    subject = {"run": str(row.run.uuid), "project": row.project, "alert": str(change.alert)}
    broker.publish("alert", subject | {"family": change.family, "change": change.kind, "state": change.state})
    return 1
