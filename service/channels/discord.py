"""Discord's webhooks: one embed, and nobody is pinged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from service.channels.kind import HttpKind, Outgoing, PictureForm, Post
from service.channels.texts import COLOURS, cut_escaped, subject_line, title_line

TITLE, DESCRIPTION, NAME, VALUE, FOOTER, FIELDS = 256, 4096, 256, 1024, 2048, 25  # UTF-16 units; fields of an embed
TOTAL = 6000  # units of all texts of a message together
PICTURE = "gap.png"
MARKS = "\\*_~`|>#[]()<@:"


class Discord(HttpKind):
    """Posts {embeds}."""

    name = "discord"
    picture: PictureForm | None = "inside"

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        embed: dict[str, Any] = {
            "title": cut_escaped(title_line(message), TITLE, MARKS),
            "color": COLOURS[message["type"]],
            "timestamp": message["at"],
        }
        room = TOTAL - _units(embed["title"])
        footer = subject_line(message)
        if footer:
            embed["footer"] = {"text": cut_escaped(footer, min(FOOTER, 400), "")}  # a footer knows no markup
            room -= _units(embed["footer"]["text"])
        if "alert" in message:
            embed["url"] = message["alert"]["url"]
            links = f"[Alert]({message['alert']['url']}) · [Run]({message['run']['url']})"
        else:
            links = ""
        said = [cut_escaped(line, 1200, MARKS) for line in message["summary"] if line.strip()]
        kept: list[str] = []
        left = min(DESCRIPTION, room // 2) - len(links) - 1
        for line in said:
            if _units(line) + 1 > left:
                break
            kept.append(line)
            left -= _units(line) + 1
        embed["description"] = "\n".join([*kept, links] if links else kept)
        room -= _units(embed["description"])
        fields: list[dict[str, Any]] = []
        for fact in message["facts"][:FIELDS]:
            name = cut_escaped(fact["label"], NAME, MARKS) or "–"
            value = cut_escaped(fact["text"], min(VALUE, 600), MARKS) or "–"
            room -= _units(name) + _units(value)
            if room < 0:
                break
            fields.append({"name": name, "value": value, "inline": len(value) <= 40})
        embed["fields"] = fields
        return {"embeds": [embed], "allowed_mentions": {"parse": []}}

    def write(self, outgoing: Outgoing) -> Post:
        if outgoing.picture is None:
            return super().write(outgoing)
        payload = self.payload(outgoing.message)
        payload["embeds"][0]["image"] = {"url": f"attachment://{PICTURE}"}
        parts = {
            "payload_json": (None, msgspec.json.encode(payload), "application/json"),
            "files[0]": (PICTURE, outgoing.picture, "image/png"),
        }
        form = httpx.Request("POST", "http://form", files=parts)
        return Post({"content-type": form.headers["content-type"], "user-agent": "pacenote"}, form.read())


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
