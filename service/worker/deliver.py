"""Empties the outbox: several channels at once, one message at a time to each, so that a slow one holds up no other."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from service.broker import Broker
from service.channels import outbox
from service.channels.attempt import Pictures, attempt_at
from service.channels.outbox import SCHEDULE, Attempt, Claim
from service.channels.sending import TIMEOUT, Sender
from service.channels.vault import Vault, VaultError
from service.database.engine import reading, writing

log = logging.getLogger(__name__)

THREADS = 16
LEASE = TIMEOUT + 25.0  # seconds a claim is held: longer than a sending takes with resolving the name


class Deliverer:
    """Claims due messages and sends them from a few threads that end with the process.

    `on_free` is called, from any thread, whenever a channel can take its next message.
    """

    def __init__(
        self,
        engine: Engine,
        broker: Broker,
        sender: Sender,
        vault: Callable[[], Vault],
        *,
        on_free: Callable[[], None] = lambda: None,
        schedule: Sequence[float] = SCHEDULE,
        lease: float = LEASE,
        threads: int = THREADS,
        pictures: Pictures | None = None,
    ) -> None:
        self._engine = engine
        self._broker = broker
        self._sender = sender
        self._vault = vault
        self._on_free = on_free
        self._schedule = schedule
        self._lease = lease
        self._limit = threads
        self._pictures = pictures
        self._claims: queue.SimpleQueue[Claim | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._busy: set[int] = set()
        self._stopping = False

    def deliver_due(self) -> int:
        """Start sending what is due; how many messages that are. Called by one thread."""
        with self._lock:
            busy = set(self._busy)
        room = self._limit - len(busy)
        if self._stopping or room <= 0:
            return 0
        now = time.time()
        with reading(self._engine) as session:
            if not outbox.is_due(session, now, busy):
                return 0
        with writing(self._engine) as session:
            claims = outbox.claim(session, now, self._lease, busy, room)
        with self._lock:
            self._busy |= {claim.channel_id for claim in claims}
            missing = len(self._busy) - len(self._threads)
        for _ in range(missing):
            thread = threading.Thread(target=self._send_all, name=f"deliver-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        for claim in claims:
            self._claims.put(claim)
        return len(claims)

    def stop(self, timeout: float = 1.0) -> None:
        """Break off what is being sent, which the next process tries again at once, and end the threads."""
        self._stopping = True
        self._sender.abort()
        for _ in self._threads:
            self._claims.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _send_all(self) -> None:
        while (claim := self._claims.get()) is not None:
            try:
                if not self._stopping:
                    self._send(claim)
            except SQLAlchemyError:
                log.exception("the attempt at message %s is not recorded; its claim lapses", claim.message_id)
            finally:
                with self._lock:
                    self._busy.discard(claim.channel_id)
                self._on_free()

    def _send(self, claim: Claim) -> None:
        attempt = self._attempt(claim)
        broken_off = self._stopping and attempt.reply is None
        schedule = [0.0] * len(self._schedule) if broken_off else self._schedule
        with writing(self._engine) as session:
            delivery = outbox.record(session, claim, attempt, schedule)
            state = None if delivery is None else delivery.state
        if state is not None:
            self._broker.publish("delivery", {"delivery": claim.message_id, "state": state, **_subject(claim)})

    def _attempt(self, claim: Claim) -> Attempt:
        try:
            vault = self._vault()
        except VaultError as error:
            return Attempt(time.time(), 0.0, error=str(error))
        return attempt_at(self._sender, vault, claim, self._pictures)


def _subject(claim: Claim) -> dict[str, str]:
    alert, run = claim.message["alert"], claim.message["run"]
    return {"alert": alert["id"], "run": run["id"], "project": run["project"]}
