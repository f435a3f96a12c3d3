"""One message for what belongs together: alerts of one run, or of one project, that came within a channel's group wait.

The first message of a group leads: the others are sent with it, under its id, and share its fate. Who is sent with
whom is kept, so that every attempt says the same. Order within an alert stays: a message joins only with all that come
before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.alerts.severity import SEVERITIES
from service.channels.outbox_repository import OutboxRepository
from service.database.models import Channel, Delivery

Message = Mapping[str, Any]

AT_MOST = 100  # messages in one
LISTED = 10  # alerts that its text names
SIGNS = {"alert.firing": "🔴", "alert.updated": "🟠", "alert.resolved": "🟢"}


def gather(repository: OutboxRepository, leader: Delivery, channel: Channel) -> list[Delivery]:
    """The messages that go out with `leader`, in order, `leader` among them. It has been locked and not claimed yet."""
    kept = repository.sent_with(leader.id)
    if channel.group_by == "none" or leader.attempts or leader.claimed_until is not None:
        return [leader, *kept]
    joining = _joining(repository, leader, channel)
    for delivery in joining:
        delivery.sent_with = leader.id
    return [leader, *joining]


def bundle(deliveries: Sequence[Delivery], by: str) -> Message:
    """The one message of a group; that of a single delivery is its own."""
    members = [delivery.payload for delivery in deliveries]
    if len(members) == 1:
        return members[0]
    newest: dict[str, Message] = {}
    for member in members:
        newest[member["alert"]["id"]] = member
    group = {"group": {"by": by, "messages": [_listed(delivery) for delivery in deliveries]}}
    if len(newest) == 1:
        return {**members[-1], "type": _type(members), **group}
    alerts = sorted(newest.values(), key=lambda member: member["alert"]["state"] == "resolved")
    return {**_heading(alerts, members, by), **group, "members": alerts}


def _joining(repository: OutboxRepository, leader: Delivery, channel: Channel) -> list[Delivery]:
    found = repository.fresh(leader, channel.group_by, AT_MOST - 1)
    waiting = repository.waiting_of(channel.id, {delivery.alert_id for delivery in found})
    chosen = {leader.id}
    joining: list[Delivery] = []
    for delivery in sorted(found, key=lambda each: (each.change_number, each.id)):
        earlier = (
            key for alert, number, key in waiting if alert == delivery.alert_id and number < delivery.change_number
        )
        if chosen.issuperset(earlier):
            chosen.add(delivery.id)
            joining.append(delivery)
    return sorted(joining, key=lambda each: each.id)


def _listed(delivery: Delivery) -> dict[str, Any]:
    payload = delivery.payload
    parts = {key: payload[key] for key in ("type", "title", "change")}
    return {"id": str(delivery.uuid), **parts, "alert": {key: payload["alert"][key] for key in ("id", "url", "state")}}


def _type(members: Sequence[Message]) -> str:
    """What a group says as a whole: over if all is over, else raised if anything in it was raised."""
    last = {member["alert"]["id"]: member for member in members}
    if all(member["alert"]["state"] == "resolved" for member in last.values()):
        return "alert.resolved"
    return "alert.firing" if any(member["type"] == "alert.firing" for member in members) else "alert.updated"


def _heading(alerts: Sequence[Message], members: Sequence[Message], by: str) -> dict[str, Any]:
    """What the message says as a whole. It links to the list of alerts, and to the run where there is one alone."""
    first = alerts[0]
    over = sum(member["alert"]["state"] == "resolved" for member in alerts)
    runs = {member["run"]["id"]: member["run"] for member in alerts}
    run = first["run"]
    home = first["alert"]["url"].rpartition("/alerts/")[0]
    if len(runs) > 1:
        stages = {each["stage"] for each in runs.values()}
        stage = run["stage"] if len(stages) == 1 else "several stages"
        run = {**run, "name": f"{len(runs)} runs", "stage": stage, "url": f"{home}/"}
    of = f"run {run['name']}" if by == "run" else f"project {run['project']}"
    counts = [f"{len(alerts) - over} firing"] * (over < len(alerts)) + [f"{over} resolved"] * (over > 0)
    said = [f"{SIGNS[_type([member])]} {member['title']}" for member in alerts[:LISTED]]
    if len(alerts) > LISTED:
        said.append(f"… and {len(alerts) - LISTED} more")
    worst = max((member["alert"]["severity"] for member in alerts), key=SEVERITIES.index)
    rules = list(dict.fromkeys(rule for member in alerts for rule in member["alert"]["rules"]))
    empty: dict[str, Any] = {"since": None, "recovery": None, "evidence": [], "causes": [], "next_checks": []}
    return {
        **first,
        **empty,
        "judgements": [],
        "facts": [],
        "type": _type(members),
        "title": f"{len(alerts)} alerts of {of}: {', '.join(counts)}",
        "at": members[-1]["at"],
        "run": run,
        "summary": said,
        "alert": {**first["alert"], "url": f"{home}/alerts", "severity": worst, "rules": rules},
    }
