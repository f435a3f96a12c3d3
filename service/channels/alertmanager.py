"""The JSON that Alertmanager (version 4 of its webhook format) sends, which on-call tools read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from service.alerts.message import cut
from service.channels.kind import HttpKind, PictureForm

OPEN_END = "0001-01-01T00:00:00Z"
GROUP = ("alertname", "run_id")
LIMIT = 2000  # characters of an annotation


class Alertmanager(HttpKind):
    """Posts {version, status, alerts, …}. A test message is a resolved alert, so that it wakes nobody."""

    name = "alertmanager"
    picture: PictureForm | None = None

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        alerts = [_alert(member) for member in message.get("members", [message])]
        labels, annotations = _common(alerts, "labels"), _common(alerts, "annotations")
        group = {name: labels[name] for name in GROUP if name in labels}
        open_ones = any(alert["status"] == "firing" for alert in alerts)
        return {
            "version": "4",
            "groupKey": "{}:{" + ", ".join(f'{name}="{value}"' for name, value in group.items()) + "}",
            "truncatedAlerts": 0,
            "status": "firing" if open_ones else "resolved",
            "receiver": "pacenote",
            "groupLabels": group,
            "commonLabels": labels,
            "commonAnnotations": annotations,
            "externalURL": message["alert"]["url"].rpartition("/alerts")[0] if "alert" in message else "",
            "alerts": alerts,
        }


def _alert(message: Mapping[str, Any]) -> dict[str, Any]:
    annotations = {
        "summary": cut(message["title"], LIMIT),
        "description": cut("\n".join(message["summary"]), LIMIT),
    }
    for fact in message["facts"]:
        annotations[_label(fact["label"])] = cut(fact["text"], LIMIT)
    if "alert" in message:
        alert, run, reference = message["alert"], message["run"], message["reference"]
        labels = {
            "alertname": f"Pacenote {alert['family']}",
            "severity": alert["severity"],
            "project": run["project"],
            "run": run["name"],
            "stage": run["stage"],
            "run_id": run["id"],
            "reference": reference["slug"],
        }
        status = "resolved" if alert["state"] == "resolved" else "firing"
        key, url, began = alert["id"], alert["url"], alert["opened_at"]
        ended = alert["resolved_at"] or OPEN_END
        annotations["run_url"] = run["url"]
    else:
        labels = {"alertname": "Pacenote test", "severity": "info"}
        status, key, url, began, ended = "resolved", "test", "", message["at"], message["at"]
    return {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": began,
        "endsAt": ended,
        "generatorURL": url,
        "fingerprint": hashlib.blake2b(key.encode(), digest_size=8).hexdigest(),
    }


def _common(alerts: Sequence[Mapping[str, Any]], part: str) -> dict[str, str]:
    """What all of them say alike."""
    first, *others = (alert[part] for alert in alerts)
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _label(text: str) -> str:
    """A name that Prometheus allows for a label."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in text.strip().lower())[:100] or "fact"
