"""Google Chat's incoming webhooks: a card, in one thread per alert."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from service.channels.kind import HttpKind, Outgoing
from service.channels.sending import Reply, Sender
from service.channels.texts import PICTURE, one_line, shorter, subject_line, title_line

TITLE, LABEL, TEXT = 200, 100, 1500  # characters; a whole message may have 32,000 bytes
THREAD = "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD"


class GoogleChat(HttpKind):
    """Posts {text, cardsV2, thread}."""

    name = "google_chat"

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        widgets: list[dict[str, Any]] = [
            {"textParagraph": {"text": _escaped(line, TEXT)}} for line in message["summary"][:6] if line.strip()
        ]
        for fact in message["facts"]:
            text = {"topLabel": _escaped(fact["label"], LABEL), "text": _escaped(fact["text"], 800), "wrapText": True}
            widgets.append({"decoratedText": text})
        if "picture" in message:
            widgets.append({"image": {"imageUrl": message["picture"], "altText": PICTURE}})
        if "alert" in message:
            links = (("Alert", message["alert"]["url"]), ("Run", message["run"]["url"]))
            buttons = [{"text": text, "onClick": {"openLink": {"url": url}}} for text, url in links]
            widgets.append({"buttonList": {"buttons": buttons}})
        # A card's header is plain text. The text beside it is what notifications show; there < begins a mention.
        title = shorter(title_line(message), TITLE)
        header = {"title": title, "subtitle": shorter(subject_line(message), TITLE)}
        body: dict[str, Any] = {
            "text": title.replace("<", "‹").replace(">", "›").replace("*", "∗").replace("`", "ˋ"),
            "cardsV2": [{"cardId": "alert", "card": {"header": header, "sections": [{"widgets": widgets}]}}],
        }
        if "alert" in message:
            body["thread"] = {"threadKey": f"pacenote-{message['alert']['id']}"}
        return body

    def deliver(self, sender: Sender, outgoing: Outgoing) -> Reply:
        url = str(httpx.URL(outgoing.url).copy_set_param("messageReplyOption", THREAD))
        return super().deliver(sender, replace(outgoing, url=url))


def _escaped(text: str, limit: int) -> str:
    return html.escape(shorter(one_line(text), limit), quote=False)
