"""Generic webhooks by the Standard Webhooks specification 1.0.0: signed, with one id for all attempts at a message."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from standardwebhooks import Webhook

from service.alerts.message import cut
from service.channels.kind import HttpKind, Outgoing, Post

PREFIX = "whsec_"
SECRET_BYTES = (24, 64)  # what the specification allows
MAX_BODY = 20_000  # bytes; receivers may refuse more
TEXT_LIMITS = (2000, 400, 100)  # characters of any one text, tried in turn until the body fits
# Left out in this order if it still does not.
OPTIONAL = ("judgements", "next_checks", "evidence", "summary", "facts", "causes", "recovery")


class StandardWebhook(HttpKind):
    """Posts {type, timestamp, data}, signed with the channel's secret, and the one before while both are in use."""

    name = "webhook"

    def secret(self, given: str | None) -> str:
        if given is None:
            return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
        try:
            raw = base64.b64decode(given.removeprefix(PREFIX), validate=True)
        except binascii.Error as error:
            raise ValueError("must be whsec_ followed by base64") from error
        if not given.startswith(PREFIX) or not SECRET_BYTES[0] <= len(raw) <= SECRET_BYTES[1]:
            raise ValueError("must be whsec_ followed by the base64 of 24 to 64 bytes")
        return given

    def shown(self, url: str) -> str:
        address, mark, _ = url.partition("#")[0].partition("?")
        return f"{address}?…" if mark else address

    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return msgspec.json.decode(_fitted(message))

    def write(self, outgoing: Outgoing) -> Post:
        assert outgoing.secret is not None
        body = _fitted(outgoing.message)
        at = datetime.fromtimestamp(outgoing.now, UTC)
        secrets_in_use = [outgoing.secret, *([outgoing.previous] if outgoing.previous else [])]
        signatures = [Webhook(secret).sign(outgoing.message_id, at, body.decode()) for secret in secrets_in_use]
        headers = {
            "content-type": "application/json",
            "user-agent": "pacenote",
            "webhook-id": outgoing.message_id,
            "webhook-timestamp": str(int(outgoing.now)),
            "webhook-signature": " ".join(signatures),
        }
        return Post(headers, body)


def _fitted(message: Mapping[str, Any]) -> bytes:
    """The body in less than MAX_BODY bytes; texts are cut before whole parts are left out."""
    kept = {name: value for name, value in message.items() if name not in ("type", "at", "members")}
    body = b""
    for limit in TEXT_LIMITS:
        body = _encoded(message, {name: _shortened(value, limit) for name, value in kept.items()})
        if len(body) < MAX_BODY:
            return body
    data = {name: _shortened(value, TEXT_LIMITS[-1]) for name, value in kept.items()}
    if "group" in data:  # what is left of each message is what tells it from the others
        listed = [{"id": each["id"], "alert": {"id": each["alert"]["id"]}} for each in data["group"]["messages"]]
        data["group"] = {**data["group"], "messages": listed}
    for name in OPTIONAL:
        data.pop(name, None)
        body = _encoded(message, data)
        if len(body) < MAX_BODY:
            return body
    return body


def _encoded(message: Mapping[str, Any], data: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"type": message["type"], "timestamp": message["at"], "data": data})


def _shortened(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return value if value.startswith(("http://", "https://")) else cut(value, limit)
    if isinstance(value, Mapping):
        return {name: _shortened(item, limit) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_shortened(item, limit) for item in cast("list[Any]", value)]
    return value
