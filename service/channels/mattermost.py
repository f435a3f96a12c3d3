"""Mattermost's incoming webhooks: one attachment with fields, and nobody is mentioned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from service.channels.kind import HttpKind
from service.channels.texts import COLOURS, cut_escaped, fitted, one_line, shorter, subject_line, title_line

TITLE, VALUE = 300, 800  # characters
MAX_POST = 16_383  # characters of a whole post
TEXT_LIMITS = (1200, 400, 120, 40)  # characters of one text, tried in turn until the post fits
MARKS = "\\*_~`|>#[]()<!:"


class Mattermost(HttpKind):
    """Posts {text, attachments}."""

    name = "mattermost"

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return fitted(lambda limit: _message(message, limit), TEXT_LIMITS, _characters, MAX_POST)


def _message(message: Mapping[str, Any], limit: int) -> dict[str, Any]:
    said = [_escaped(line, limit) for line in message["summary"][:6] if line.strip()]
    attachment: dict[str, Any] = {
        "fallback": shorter(one_line(title_line(message)), TITLE),
        "color": f"#{COLOURS[message['type']]:06X}",
        "title": _escaped(title_line(message), TITLE),
        "text": "\n".join(said),
        "fields": [
            {"title": _escaped(fact["label"], 100), "value": _escaped(fact["text"], min(limit, VALUE)), "short": False}
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


def _characters(body: Any) -> int:
    return len(msgspec.json.encode(body).decode())


def _escaped(text: str, limit: int) -> str:
    """No markup, and an @ that mentions nobody: a space of no width follows it."""
    return cut_escaped(text, limit, MARKS).replace("@", "@\u200b")
