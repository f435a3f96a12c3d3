"""The JSON that Alertmanager (version 4 of its webhook format) sends, which on-call tools read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from service.alerts.message import cut
from service.channels.kind import HttpKind

OPEN_END = "0001-01-01T00:00:00Z"
LIMIT = 2000  # characters of an annotation


class Alertmanager(HttpKind):
    """Posts {version, status, alerts, …}. A test message is a resolved alert, so that it wakes nobody."""

    name = "alertmanager"

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
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
            home = url.rpartition("/alerts/")[0]
            annotations["run_url"] = run["url"]
        else:
            labels = {"alertname": "Pacenote test", "severity": "info"}
            status, key, url, began, ended = "resolved", "test", "", message["at"], message["at"]
            home = ""
        entry = {
            "status": status,
            "labels": labels,
            "annotations": annotations,
            "startsAt": began,
            "endsAt": ended,
            "generatorURL": url,
            "fingerprint": hashlib.blake2b(key.encode(), digest_size=8).hexdigest(),
        }
        group = {name: labels[name] for name in ("alertname", "run_id") if name in labels}
        return {
            "version": "4",
            "groupKey": "{}:{" + ", ".join(f'{name}="{value}"' for name, value in group.items()) + "}",
            "truncatedAlerts": 0,
            "status": status,
            "receiver": "pacenote",
            "groupLabels": group,
            "commonLabels": labels,
            "commonAnnotations": annotations,
            "externalURL": home,
            "alerts": [entry],
        }


def _label(text: str) -> str:
    """A name that Prometheus allows for a label."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in text.strip().lower())[:100] or "fact"
