"""Slack's incoming webhooks: a header, what was found, the facts, and links."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from service.alerts.message import cut
from service.channels.kind import Post

HEADER = 150  # characters of a header block
SECTION = 3000  # characters of a text inside a block
TEXT = 4000  # characters of the plain text that notifications show
SIGNS = {"alert.firing": "🔴", "alert.updated": "🟠 Update:", "alert.resolved": "🟢 Resolved:", "channel.test": "🔔"}


class Slack:
    """Posts {text, blocks}. The address itself is the secret, so only its host is shown."""

    name = "slack"

    def secret(self, given: str | None) -> str | None:
        if given is not None:
            raise ValueError("is not used by slack channels: leave it out")
        return None

    def shown(self, url: str) -> str:
        parsed = urlsplit(url)
        return f"{parsed.scheme}://{parsed.netloc}/…"

    def write(self, message: Mapping[str, Any], message_id: str, now: float, secret: str | None) -> Post:
        body = msgspec.json.encode(payload(message))
        return Post({"content-type": "application/json", "user-agent": "pacenote"}, body)


def payload(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message in Slack's form, inside its limits."""
    title = _one_line(f"{SIGNS[message['type']]} {message['title']}")
    header = {"type": "plain_text", "text": _shorter(title, HEADER), "emoji": True}
    blocks: list[dict[str, Any]] = [{"type": "header", "text": header}]
    said = "\n".join(escaped(line) for line in message["summary"])
    if said.strip():
        blocks.append({"type": "section", "text": _markdown(said)})
    if message["facts"]:
        lines = [f"*{escaped(fact['label'])}*  {escaped(fact['text'])}" for fact in message["facts"]]
        blocks.append({"type": "section", "text": _markdown("\n".join(lines))})
    if "alert" in message:
        blocks.append({"type": "context", "elements": [_markdown(_links(message))]})
    return {"text": _whole(_shorter(escaped(title), TEXT)), "blocks": blocks}


def escaped(text: str) -> str:
    """One line of text that can begin no link, no mention and no entity, and cannot turn the line's direction."""
    return _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _links(message: Mapping[str, Any]) -> str:
    run, reference = message["run"], message["reference"]
    names = escaped(f"{run['project']} / {run['name']} / {run['stage']}")
    against = escaped(f"against {reference['slug']} {reference['version']}")
    return f"<{message['alert']['url']}|Alert> · <{run['url']}|Run> · {names} · {against}"


def _markdown(text: str) -> dict[str, str]:
    return {"type": "mrkdwn", "text": _whole(_shorter(text, SECTION))}


def _shorter(text: str, limit: int) -> str:
    """`cut` by UTF-16 units, of which a character beyond the basic plane has two."""
    return cut(text, limit - sum(ord(character) > 0xFFFF for character in text[:limit]))


def _whole(text: str) -> str:
    """The text without an entity that was cut in two at its end."""
    start = text.rfind("&", max(0, len(text) - 6))
    return text[:start].rstrip() + "…" if start >= 0 and ";" not in text[start:] else text


def _one_line(text: str) -> str:
    """White space as single blanks; no control characters, no marks that override the direction of writing."""
    shown = (" " if c.isspace() else c for c in text if c.isspace() or not _is_control(c))
    return " ".join("".join(shown).split())


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc" or unicodedata.bidirectional(character) in {
        "LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI",
    }  # fmt: skip
