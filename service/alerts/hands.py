"""What people do with an alert: acknowledge, mute, assign, comment, resolve. Each is a change with who and from where.

All of them work inside the caller's transaction, on an alert that it has locked. The same again changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from service.alerts.announce import announce
from service.alerts.held import hold
from service.alerts.record import episode_of
from service.alerts.repository import AlertRepository, AlertRow
from service.errors import ConflictError


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did it and what they said; through which client, from which address ("" where it is not known)."""

    by: str
    note: str = ""
    via: str = ""
    address: str = ""


class Hands:
    """One person's actions on one alert. Each answers whether it changed anything."""

    def __init__(self, session: Session, row: AlertRow, actor: Actor, *, now: float, base_url: str) -> None:
        self._session = session
        self._repository = AlertRepository(session)
        self._row = row
        self._actor = actor
        self._now = now
        self._base_url = base_url

    def acknowledge(self) -> bool:
        """Say that somebody is at it. A rule that joins later is still sent; the alert is not said again."""
        self._must_be_open("acknowledge")
        alert, actor = self._row.alert, self._actor
        last = self._repository.last_change(alert.id, ("acknowledged",))
        if last is not None and (last.body["by"], last.body["note"]) == (actor.by, actor.note):
            return False
        alert.state = "acknowledged"
        self._write("acknowledged")
        return True

    def mute(self, until: float) -> bool:
        """Hold its messages back until this time (unix seconds); evidence is kept as before."""
        self._must_be_open("mute")
        if self._row.alert.muted_until == until:
            return False
        self._row.alert.muted_until = until
        self._write("muted", until=until)
        return True

    def unmute(self) -> bool:
        """Let its messages go again. If a rule still says yes, one message says how it stands."""
        if self._row.alert.muted_until is None:
            return False
        number = self._write("unmuted")
        end_mute(self._session, self._row, number, now=self._now, base_url=self._base_url, reason=None)
        return True

    def assign(self, assignee: str | None) -> bool:
        """Make it somebody's, or nobody's."""
        if self._row.alert.assignee == assignee:
            return False
        self._row.alert.assignee = assignee
        self._write("assigned", assignee=assignee)
        return True

    def comment(self) -> bool:
        """Write something beside it."""
        self._write("commented")
        return True

    def resolve(self) -> bool:
        """End it now, with its one `resolved` message, which a mute does not hold back.

        Rules that still say yes are held back until they have cleared: `service.alerts.held`.
        """
        alert, actor = self._row.alert, self._actor
        if alert.state == "resolved":
            return False
        alert.held = hold(episode_of(self._repository, alert).active)
        alert.state, alert.resolved_at, alert.muted_until = "resolved", self._now, None
        reason = f"resolved by {actor.by}" + (f": {actor.note}" if actor.note else "")
        number = self._write("resolved", rules=list(alert.rules), reason=reason)
        self._announce("resolved", number, reason)
        return True

    def _must_be_open(self, what: str) -> None:
        alert = self._row.alert
        if alert.state == "resolved":
            raise ConflictError(f"Alert {alert.uuid} is resolved; there is nothing left to {what}.")

    def _write(self, kind: str, **more: Any) -> int:
        return self._repository.add_change(self._row.alert, kind, self._now, {**asdict(self._actor), **more})

    def _announce(self, kind: str, number: int, reason: str | None) -> None:
        rules = self._row.alert.rules
        now, base_url = self._now, self._base_url
        announce(self._session, self._row, kind, number, rules, now=now, base_url=base_url, reason=reason)


def end_mute(session: Session, row: AlertRow, number: int, *, now: float, base_url: str, reason: str | None) -> None:
    """Let the messages of an alert go again by its change `number`, with one message if a rule still says yes."""
    row.alert.muted_until = None
    active = episode_of(AlertRepository(session), row.alert).active
    if row.alert.state != "resolved" and active:
        announce(session, row, "unmuted", number, active, now=now, base_url=base_url, reason=reason)


def mute_end(now: float, until: float | None, minutes: float | None, longest: float) -> float:
    """When a mute ends (unix seconds), from a time or a number of minutes.

    Raises:
        ValueError: neither or both are given, or the end is not within the `longest` seconds from now.
    """
    if (until is None) == (minutes is None):
        raise ValueError("needs an end: give either `until` or `minutes`")
    end = now + 60.0 * minutes if minutes is not None else until
    assert end is not None
    if not math.isfinite(end) or not now < end <= now + longest + 60.0:
        raise ValueError(f"must end later than now and within {longest / 86400:.0f} days")
    return end
