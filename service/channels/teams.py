"""Microsoft Teams through a Workflow ("when a webhook request is received"): an Adaptive Card.

Texts are text runs, which know no markup, so that names show as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.channels.kind import HttpKind
from service.channels.texts import PICTURE, encoded_bytes, fitted, one_line, shorter, subject_line, title_line

MAX_BODY = 28_000  # bytes of a whole message
STYLES = {"alert.firing": "attention", "alert.updated": "warning", "alert.resolved": "good", "channel.test": "accent"}
TEXT_LIMITS = (1500, 500, 150, 50)  # characters of one text, tried in turn until the message fits


class Teams(HttpKind):
    """Posts {type: message, attachments: [Adaptive Card 1.4]}."""

    name = "teams"

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return fitted(lambda limit: _message(message, limit), TEXT_LIMITS, encoded_bytes, MAX_BODY)


def _message(message: Mapping[str, Any], limit: int) -> dict[str, Any]:
    title = _run(shorter(title_line(message), 300), weight="Bolder", size="Large")
    body: list[dict[str, Any]] = [
        {"type": "Container", "style": STYLES[message["type"]], "bleed": True, "items": [_block(title)]}
    ]
    body += [_block(_run(shorter(one_line(said), limit))) for said in message["summary"][:6] if said.strip()]
    for fact in message["facts"]:
        label, text = shorter(one_line(fact["label"]), 100), shorter(one_line(fact["text"]), min(limit, 800))
        body.append(_block(_run(f"{label}  ", weight="Bolder"), _run(text)))
    if "picture" in message:
        body.append({"type": "Image", "url": message["picture"], "altText": PICTURE, "size": "Stretch"})
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "msteams": {"width": "Full"},
    }
    if "alert" in message:
        body.append(_block(_run(shorter(subject_line(message), 600), isSubtle=True, size="Small")))
        links = (("Alert", message["alert"]["url"]), ("Run", message["run"]["url"]))
        card["actions"] = [{"type": "Action.OpenUrl", "title": name, "url": url} for name, url in links]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _block(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _run(text: str, **style: Any) -> dict[str, Any]:
    return {"type": "TextRun", "text": text, **style}
