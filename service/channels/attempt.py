"""One try to send one message."""

from __future__ import annotations

import logging
import time

from service.channels.kinds import KINDS
from service.channels.outbox import Attempt, Claim
from service.channels.sending import Sender, SendError

log = logging.getLogger(__name__)


def attempt_at(sender: Sender, claim: Claim) -> Attempt:
    """Send a message; whatever goes wrong becomes part of the attempt."""
    at, began = time.time(), time.monotonic()
    try:
        post = KINDS[claim.kind].write(claim.message, claim.message_id, at, claim.secret)
        reply = sender.post(claim.url, post.headers, post.body)
    except SendError as error:
        return Attempt(at, time.monotonic() - began, error=str(error))
    except Exception as error:  # a message that cannot be written must not stop the others
        log.exception("message %s cannot be written for a %s channel", claim.message_id, claim.kind)
        return Attempt(at, time.monotonic() - began, error=f"{type(error).__name__}: {error}")
    return Attempt(at, time.monotonic() - began, reply)
