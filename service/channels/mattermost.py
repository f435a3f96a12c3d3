"""Mattermost's incoming webhooks: one attachment with fields, and nobody is mentioned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.channels.kind import HttpKind
from service.channels.texts import COLOURS, cut_escaped, one_line, shorter, subject_line, title_line

TITLE, LINE, VALUE = 300, 1200, 800  # characters; a post may have 16,383
MARKS = "\\*_~`|>#[]()<!:"


class Mattermost(HttpKind):
    """Posts {text, attachments}."""

    name = "mattermost"

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        said = [_escaped(line, LINE) for line in message["summary"][:6] if line.strip()]
        attachment: dict[str, Any] = {
            "fallback": shorter(one_line(title_line(message)), TITLE),
            "color": f"#{COLOURS[message['type']]:06X}",
            "title": _escaped(title_line(message), TITLE),
            "text": "\n".join(said),
            "fields": [
                {"title": _escaped(fact["label"], 100), "value": _escaped(fact["text"], VALUE), "short": False}
                for fact in message["facts"]
            ],
        }
        if "picture" in message:
            attachment["image_url"] = message["picture"]
        if "alert" in message:
            attachment["title_link"] = message["alert"]["url"]
            attachment["text"] += f"\n[Alert]({message['alert']['url']}) · [Run]({message['run']['url']})"
            attachment["footer"] = shorter(subject_line(message), TITLE)
        return {"username": "Pacenote", "text": "", "attachments": [attachment]}


def _escaped(text: str, limit: int) -> str:
    """No markup, and an @ that mentions nobody: a space of no width follows it."""
    return cut_escaped(text, limit, MARKS).replace("@", "@\u200b")
