"""Google Chat's incoming webhooks: a card, in one thread per alert."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from service.channels.kind import HttpKind, Outgoing
from service.channels.sending import Reply, Sender
from service.channels.texts import PICTURE, encoded_bytes, fitted, one_line, shorter, subject_line, title_line

TITLE, LABEL = 200, 100  # characters
MAX_BODY = 32_000  # bytes of a whole message
TEXT_LIMITS = (1500, 500, 150, 50)  # characters of one text, tried in turn until the message fits
HARMLESS = str.maketrans("<>*`~_", "‹›∗ˋ∼ˍ")  # there < begins a mention, and no mark can be escaped
THREAD = "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD"


class GoogleChat(HttpKind):
    """Posts {text, cardsV2, thread}."""

    name = "google_chat"

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return fitted(lambda limit: _message(message, limit), TEXT_LIMITS, encoded_bytes, MAX_BODY)

    def deliver(self, sender: Sender, outgoing: Outgoing) -> Reply:
        url = str(httpx.URL(outgoing.url).copy_set_param("messageReplyOption", THREAD))
        return super().deliver(sender, replace(outgoing, url=url))


def _message(message: Mapping[str, Any], limit: int) -> dict[str, Any]:
    widgets: list[dict[str, Any]] = [
        {"textParagraph": {"text": _escaped(line, limit)}} for line in message["summary"][:6] if line.strip()
    ]
    for fact in message["facts"]:
        label, text = _escaped(fact["label"], LABEL), _escaped(fact["text"], min(limit, 800))
        widgets.append({"decoratedText": {"topLabel": label, "text": text, "wrapText": True}})
    if "picture" in message:
        widgets.append({"image": {"imageUrl": message["picture"], "altText": PICTURE}})
    if "alert" in message:
        links = (("Alert", message["alert"]["url"]), ("Run", message["run"]["url"]))
        buttons = [{"text": text, "onClick": {"openLink": {"url": url}}} for text, url in links]
        widgets.append({"buttonList": {"buttons": buttons}})
    # A card's header is plain text. The text beside it is what notifications show.
    title = shorter(title_line(message), TITLE)
    header = {"title": title, "subtitle": shorter(subject_line(message), TITLE)}
    body: dict[str, Any] = {
        "text": title.translate(HARMLESS),
        "cardsV2": [{"cardId": "alert", "card": {"header": header, "sections": [{"widgets": widgets}]}}],
    }
    if "alert" in message:
        body["thread"] = {"threadKey": f"pacenote-{message['alert']['id']}"}
    return body


def _escaped(text: str, limit: int) -> str:
    return html.escape(shorter(one_line(text), limit), quote=False)
