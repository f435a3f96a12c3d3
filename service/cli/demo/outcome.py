"""Was it the right alert? What the demo demands of the messages that reached the chat receiver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.cli.demo.receiver import Received


def complaints(messages: Sequence[Received], alerts: Sequence[dict[str, Any]], *, healthy: bool) -> list[str]:
    """What was not as it must be; empty if all was right. `alerts` as GET /alerts lists those of the run."""
    if healthy:
        return [f"an alert was raised on a healthy run: {alert['title']}" for alert in alerts] + [
            f"a message was sent for a healthy run: {message.body['data']['title']}" for message in messages
        ]
    if len(alerts) != 1:
        return [f"one alert was due, there are {len(alerts)}"]
    if not messages:
        return ["the alert did not reach the chat receiver"]
    found = [f"message {message.id} has a wrong signature" for message in messages if not message.genuine]
    first, later = messages[0].body, messages[1:]
    if first["type"] != "alert.firing" or first["data"]["change"]["rules"] != ["repeated_rows"]:
        found.append("the alert did not open with repeated rows")
    causes = first["data"]["causes"]
    if not causes or "double shard" not in causes[0]["name"]:
        found.append(f"the first cause is not a double shard but {causes[0]['name'] if causes else 'missing'}")
    heldout = next((item for item in first["data"]["evidence"] if item["name"] == "held-out change"), None)
    if heldout is None or "cannot tell" not in str(heldout["value"] or "cannot tell yet"):
        found.append("held-out was judged when the alert opened, with no evaluation to go by")
    joined = [rule for message in later for rule in message.body["data"]["change"]["rules"]]
    if "train_only_drift" not in joined:
        found.append("the alert did not gain the train-only drift")
    if any(message.body["type"] == "alert.firing" for message in later):
        found.append("the alert fired more than once")
    return found
