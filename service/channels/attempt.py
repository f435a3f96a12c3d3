"""One try to send one message."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from service.channels.kind import Outgoing, PictureForm
from service.channels.kinds import KINDS
from service.channels.outbox import Attempt, Claim
from service.channels.sending import Sender, SendError
from service.channels.vault import Vault, VaultError

log = logging.getLogger(__name__)


class Pictures(Protocol):
    """Makes pictures of messages: `service.alerts.pictures`."""

    def png(self, message: Mapping[str, Any]) -> bytes | None:
        """The picture itself; None where there is nothing to show."""
        ...

    def address(self, message: Mapping[str, Any], now: float) -> str | None:
        """Where a chat can fetch it; None where it cannot."""
        ...


def attempt_at(sender: Sender, vault: Vault, claim: Claim, pictures: Pictures | None = None) -> Attempt:
    """Send a message, with a picture of its alert where the channel takes one; whatever goes wrong becomes part of the
    attempt."""
    at, began = time.time(), time.monotonic()
    try:
        secret, previous = (None if kept is None else vault.open(kept) for kept in (claim.secret, claim.previous))
        kind = KINDS[claim.kind]
        outgoing = Outgoing(vault.open(claim.url), claim.message, claim.message_id, at, secret, previous)
        if pictures is not None and "alert" in claim.message and "members" not in claim.message:
            outgoing = _pictured(outgoing, kind.picture, pictures)
        reply = kind.deliver(sender, outgoing)
    except (SendError, VaultError) as error:
        return Attempt(at, time.monotonic() - began, error=str(error))
    except Exception as error:  # a message that cannot be written must not stop the others
        log.exception("message %s cannot be written for a %s channel", claim.message_id, claim.kind)
        return Attempt(at, time.monotonic() - began, error=f"{type(error).__name__}: {error}")
    return Attempt(at, time.monotonic() - began, reply)


def _pictured(outgoing: Outgoing, form: PictureForm | None, pictures: Pictures) -> Outgoing:
    if form == "inside":
        return replace(outgoing, picture=pictures.png(outgoing.message))
    address = pictures.address(outgoing.message, outgoing.now) if form == "address" else None
    return replace(outgoing, message={**outgoing.message, "picture": address}) if address else outgoing
