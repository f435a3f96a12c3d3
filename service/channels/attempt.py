"""One try to send one message."""

from __future__ import annotations

import logging
import time

from service.channels.kind import Outgoing
from service.channels.kinds import KINDS
from service.channels.outbox import Attempt, Claim
from service.channels.sending import Sender, SendError
from service.channels.vault import Vault, VaultError

log = logging.getLogger(__name__)


def attempt_at(sender: Sender, vault: Vault, claim: Claim) -> Attempt:
    """Send a message; whatever goes wrong becomes part of the attempt."""
    at, began = time.time(), time.monotonic()
    try:
        secret, previous = (None if kept is None else vault.open(kept) for kept in (claim.secret, claim.previous))
        outgoing = Outgoing(vault.open(claim.url), claim.message, claim.message_id, at, secret, previous)
        reply = KINDS[claim.kind].deliver(sender, outgoing)
    except (SendError, VaultError) as error:
        return Attempt(at, time.monotonic() - began, error=str(error))
    except Exception as error:  # a message that cannot be written must not stop the others
        log.exception("message %s cannot be written for a %s channel", claim.message_id, claim.kind)
        return Attempt(at, time.monotonic() - began, error=f"{type(error).__name__}: {error}")
    return Attempt(at, time.monotonic() - began, reply)
