"""Delivers records in order: what becomes of each answer, and how long to wait before the next attempt."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from trainer_hooks.spool import Record
from trainer_hooks.stores import Store
from trainer_hooks.tally import Tally, text_of

if TYPE_CHECKING:
    from trainer_hooks.connection import Answer, Connection

REFUSED = frozenset({400, 409, 413, 422})  # sending it again would change nothing; every other failure is retried
FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0
BREATH_SECONDS = 0.002  # between records, so that catching up leaves the interpreter to the training loop
NO_ANSWER = "no answer"
ASIDE_BYTES = 64 * 2**20  # of refused records kept beside a spool
ASIDE_OBJECT_BYTES = 4 * 2**20  # …where every addition writes the whole object again


class Source(Protocol):
    """Where records come from, oldest first."""

    @property
    def segment(self) -> Record: ...
    def peek(self) -> Record | None: ...
    def acknowledge(self, record: Record) -> None: ...


class Sender:
    """Sends the records of one source over one connection, one at a time."""

    def __init__(
        self, source: Source, connection: Connection, tally: Tally, keep_refused: Callable[[Record, Answer], None]
    ) -> None:
        self.accepted = 0
        self.already_there = 0
        self.refused = 0
        self.failures = 0  # in a row
        self.last_failure = ""
        self.asked_to_wait = False  # by the Retry-After of the last answer
        self._source = source
        self._connection = connection
        self._tally = tally
        self._keep_refused = keep_refused

    def step(self) -> float | None:
        """Tries to deliver the oldest record. Returns seconds to wait before the next call; None without a record."""
        record = self._source.peek()
        if record is None:
            return None
        answer = self._deliver(record)
        if answer.accepted:
            self.already_there += answer.duplicate
            self.accepted += not answer.duplicate
            if answer.left_out:
                self._tally.add("metrics left out", f"the service stores a part of what is logged: {answer.left_out}")
        elif record.kind == "segment" and answer.status == 409 and _processes(record) > 1:
            self.already_there += 1  # another process of this launch described it first, in its own words
        elif answer.status in REFUSED:
            self._refuse(record, answer)
        else:
            return self._wait(answer)
        self.failures = 0
        self._source.acknowledge(record)
        return 0.0

    def _deliver(self, record: Record) -> Answer:
        answer = self._send(record)
        if answer.status != 404 or record.kind == "segment":
            return answer
        # The service does not know the segment: a new or restored database, or it was refused or lost.
        segment = self._send(self._source.segment)
        if segment.accepted or segment.status == 409:  # 409: another process of this launch was first
            answer = self._send(record)
            if segment.accepted or answer.status != 404:
                return answer
        if segment.status in REFUSED:  # without its segment the record can never be taken
            return segment._replace(detail=f"its segment is refused: {segment.detail}")
        return segment

    def _send(self, record: Record) -> Answer:
        path = f"/api/v1/segments/{record.segment}"
        if record.kind == "segment":
            return self._connection.request("PUT", path, record.body)
        return self._connection.request("POST", f"{path}/{record.kind}", record.body)

    def _refuse(self, record: Record, answer: Answer) -> None:
        self.refused += 1
        why = f"{answer.status} {answer.detail}"
        if record.kind == "segment":
            self._tally.say_once("segment", f"the service refuses this run, so nothing of it will be shown: {why}")
        self._tally.add(
            "rejected",
            f"the service refused a record ({record.kind}): {why}; it is kept beside the spool. Once the cause is "
            "mended, send everything again with: python -m trainer_hooks.sync --again",
        )
        try:
            self._keep_refused(record, answer)
        except Exception as error:
            self._tally.say_once("keep rejected", f"a refused record could not be kept aside: {text_of(error)}")

    def _wait(self, answer: Answer) -> float:
        self.failures += 1
        self.asked_to_wait = answer.retry_after > 0
        self.last_failure = f"{answer.status or NO_ANSWER} {answer.detail}".strip()
        if self.failures == 3:
            self._tally.say_once(
                "unreachable",
                f"{self._connection.address} does not take records ({self.last_failure}); trying on, nothing is lost",
            )
        longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(self.failures - 1, 10))
        return max(answer.retry_after, random.uniform(0.5, 1.0) * longest)


def _processes(segment: Record) -> int:
    try:
        return int(json.loads(segment.body)["topology"]["processes"])
    except (ValueError, KeyError, TypeError):
        return 1


class Aside:
    """Keeps refused records as lines of `<segment>.<process>.rejected.jsonl`, up to a size; all are counted."""

    def __init__(self, store: Store, name: str, tally: Tally) -> None:
        self._store = store
        self._name = name
        self._tally = tally
        self._room = ASIDE_BYTES if store.appends else ASIDE_OBJECT_BYTES

    def keep(self, record: Record, answer: Answer) -> None:
        """Adds one line. May raise what the store raises."""
        fields = {"at": time.time(), "status": answer.status, "detail": answer.detail, "kind": record.kind}
        line = json.dumps(fields)[:-1].encode() + b',"body":' + record.body + b"}\n"
        self._room -= len(line)
        if self._room < 0:
            self._tally.say_once("aside full", f"{self._name} is full; further refused records are only counted")
        else:
            self._store.append(self._name, line)


class SendingThread(threading.Thread):
    """Runs a sender until it is closed and there is nothing left, or the process ends."""

    def __init__(self, sender: Sender, source_changed: threading.Event, tally: Tally, when_done: Callable[[], None]):
        super().__init__(name="pacenote-sender", daemon=True)
        self.done = threading.Event()
        self._sender = sender
        self._changed = source_changed
        self._closing = threading.Event()
        self._abandoned = threading.Event()
        self._hurried = False  # a back-off was cut short because closing began
        self._tally = tally
        self._when_done = when_done

    def close(self) -> None:
        """Everything is in the source: send it, at once, then end."""
        self._closing.set()
        self._changed.set()

    def abandon(self) -> None:
        """Ends the thread after the request it is waiting for, whatever is left."""
        self._abandoned.set()
        self._changed.set()

    def run(self) -> None:
        try:
            while not self._abandoned.is_set():
                closing = self._closing.is_set()  # asked before the source, so that nothing can be added in between
                self._changed.clear()
                wait = self._guarded_step()
                if wait is None:
                    if closing:
                        break
                    self._changed.wait(1.0)
                elif wait > 0:
                    self._pause(wait)
                elif not closing:
                    time.sleep(BREATH_SECONDS)
            self._when_done()
        finally:
            self.done.set()

    def _guarded_step(self) -> float | None:
        try:
            return self._sender.step()
        except BaseException as error:  # a fault here must cost a record's delay, never the run
            self._tally.say_once("sender", f"fault while sending, trying on: {text_of(error)}")
            return 1.0

    def _pause(self, seconds: float) -> None:
        """Waits. When closing begins a back-off is cut short and started over, but never what the service asked for."""
        if self._hurried or self._sender.asked_to_wait:
            self._abandoned.wait(seconds)
        elif self._closing.wait(seconds):
            self._hurried = True
            self._sender.failures = 0
