"""The vote before an evaluation: a process that cannot take part must not leave the others waiting in a collective."""

from __future__ import annotations

from hashlib import blake2b
from importlib import import_module
from typing import Any

import numpy as np

IDENTITY_BYTES = 8
REASON_BYTES = 240


def vote(reason: str, identity: str) -> str:
    """Whether all processes are ready to evaluate the same thing: empty, or why not, the same text on all of them.

    One all-gather over all devices, on the calling thread, where `jax.distributed` runs several processes; with one
    process nothing is computed. Every process has to call it, ready or not.

    Args:
        reason: why this process is not ready; empty if it is.
        identity: what it would evaluate, with what shapes.
    """
    jax: Any = import_module("jax")
    if jax.process_count() == 1:
        return reason
    multihost_utils: Any = import_module("jax.experimental.multihost_utils")
    ballot = np.zeros(IDENTITY_BYTES + REASON_BYTES, np.uint8)
    ballot[:IDENTITY_BYTES] = np.frombuffer(blake2b(identity.encode(), digest_size=IDENTITY_BYTES).digest(), np.uint8)
    text = reason.encode("utf-8", "replace")[:REASON_BYTES]
    ballot[IDENTITY_BYTES : IDENTITY_BYTES + len(text)] = np.frombuffer(text, np.uint8)
    return _count(np.asarray(multihost_utils.process_allgather(ballot)))


def _count(ballots: Any) -> str:
    """The outcome of ballots (processes, bytes)."""
    reasons = [bytes(b[IDENTITY_BYTES:]).rstrip(b"\0").decode("utf-8", "ignore") for b in ballots]
    against = [f"process {i}: {reason}" for i, reason in enumerate(reasons) if reason]
    if against:
        more = f" (and {len(against) - 1} more processes)" if len(against) > 1 else ""
        return against[0] + more
    others = [i for i, b in enumerate(ballots) if (b[:IDENTITY_BYTES] != ballots[0][:IDENTITY_BYTES]).any()]
    return f"process {others[0]} holds another evaluation set than process 0" if others else ""
