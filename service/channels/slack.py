"""Slack's incoming webhooks: a header, what was found, the facts, and links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from service.channels.kind import HttpKind
from service.channels.texts import PICTURE, one_line, shorter, title_line

HEADER = 150  # characters of a header block
SECTION = 3000  # characters of a text inside a block
HARMLESS = str.maketrans("*`~", "∗ˋ∼")
_ITALIC = re.compile(r"(?<!\w)_(?=\S)|(?<=\S)_(?!\w)")  # inside a word it is a plain character
TEXT = 4000  # characters of the plain text that notifications show


class Slack(HttpKind):
    """Posts {text, blocks}."""

    name = "slack"

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        title = title_line(message)
        header = {"type": "plain_text", "text": shorter(title, HEADER), "emoji": True}
        blocks: list[dict[str, Any]] = [{"type": "header", "text": header}]
        said = "\n".join(escaped(line) for line in message["summary"])
        if said.strip():
            blocks.append({"type": "section", "text": _markdown(said)})
        if message["facts"]:
            lines = [f"*{escaped(fact['label'])}*  {escaped(fact['text'])}" for fact in message["facts"]]
            blocks.append({"type": "section", "text": _markdown("\n".join(lines))})
        if "picture" in message:
            blocks.append({"type": "image", "image_url": message["picture"], "alt_text": PICTURE})
        if "alert" in message:
            blocks.append({"type": "context", "elements": [_markdown(_links(message))]})
        return {"text": _whole(shorter(escaped(title), TEXT)), "blocks": blocks}


def escaped(text: str) -> str:
    """One line of text that can begin no link, no mention, no entity and no markup, and cannot turn the line's
    direction. Marks of bold, code, strike and italics cannot be escaped: they become look-alikes where they count."""
    plain = _ITALIC.sub("ˍ", one_line(text).translate(HARMLESS))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _links(message: Mapping[str, Any]) -> str:
    run, reference = message["run"], message["reference"]
    names = escaped(f"{run['project']} / {run['name']} / {run['stage']}")
    against = escaped(f"against {reference['slug']} {reference['version']}")
    return f"<{message['alert']['url']}|Alert> · <{run['url']}|Run> · {names} · {against}"


def _markdown(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": _whole(shorter(text, SECTION)), "verbatim": True}


def _whole(text: str) -> str:
    """The text without an entity that was cut in two at its end."""
    start = text.rfind("&", max(0, len(text) - 6))
    return text[:start].rstrip() + "…" if start >= 0 and ";" not in text[start:] else text
