"""Reads the remote copies of spools and sends them on, once or for as long as parts come (`sync --watch`).

Nothing is written to the store. What was sent is remembered on this machine; forgetting it costs only time, since the
service takes every record once.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from trainer_hooks.connection import Answer, Connection
from trainer_hooks.remote import BLOCK_PARTS, InTime, PartName, part_number, segment_of
from trainer_hooks.sender import Sender
from trainer_hooks.spool import Record, read_record
from trainer_hooks.stores import LocalStore, Store
from trainer_hooks.tally import Tally, text_of

CALL_SECONDS = 60.0  # for one call of the store
GAP_SECONDS = 60.0  # a missing or torn part is waited for so long, then passed over
QUIET_SECONDS = 900.0  # a launch with nothing new for so long is looked at only…
QUIET_TURNS = 30  # …at every so many turns
SAVE_SECONDS = 1.0
REFUSALS_SAID = 10  # all are counted


class StoreError(OSError):
    """The store failed or did not answer."""


class NoSegmentError(ValueError):
    """A launch whose description is lost: the service can take nothing of it unless it knows it already."""


class Parts:
    """A store as the pull reads it: every call has a time-out."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._in_time = InTime()
        self.listings = 0
        self.reads = 0

    def names(self, folder: str) -> list[str]:
        """What is directly in a folder. Raises StoreError."""
        self.listings += 1
        return self._call(lambda: self._store.names(folder))

    def get(self, name: str) -> bytes | None:
        """A whole part; None if it is not there. Raises StoreError."""
        self.reads += 1
        return self._call(lambda: self._store.get(name))

    def close(self) -> None:
        """Ends the thread that asks the store."""
        self._in_time.close()

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return self._in_time(call, CALL_SECONDS)
        except Exception as error:
            raise StoreError(f"{self._store.address}: {text_of(error)}") from error


class Place(NamedTuple):
    """How far a process of a launch was sent: the next part, and the last record's number."""

    part: int = 0
    number: int = -1


class ProcessParts:
    """The parts of one process of one launch, as a source of records."""

    def __init__(self, parts: Parts, launch: str, process: int, place: Place) -> None:
        self.parts = parts
        self.name = PartName(launch, process, place.part)
        self.number = place.number
        self.damaged = self.skipped = 0
        self.held_up_since: float | None = None  # by a part that is missing or torn
        self._block = ""  # whose listing is in…
        self._listed: set[int] = set()
        self._records: list[Record] = []  # what is left of the part that is being sent, backwards
        self._sending = place.part  # …and which one that is
        self._segment: Record | None = None
        self._last = False  # whether nothing more is to be waited for

    @property
    def place(self) -> Place:
        """How far it was acknowledged: a part that is sent in half is read again."""
        return Place(self._sending if self._records else self.name.part, self.number)

    @property
    def segment(self) -> Record:
        """The segment's record: the first of the first part, and of every block's first part.

        Raises StoreError, or NoSegmentError.
        """
        if self._segment is None:
            for part in {0, self.name.part // BLOCK_PARTS * BLOCK_PARTS}:
                data = self.parts.get(self.name._replace(part=part).path)
                first = _records(data)[0][:1] if data else []
                if first and first[0].kind == "segment":
                    self._segment = first[0]
                    return first[0]
            raise NoSegmentError(f"{self.name.launch}: the description of the segment is damaged or was removed")
        return self._segment

    def peek(self) -> Record | None:
        """The next record, reading parts as they are needed. Raises StoreError."""
        while not self._records:
            if not self._read_next():
                return None
        return self._records[-1]

    def acknowledge(self, record: Record) -> None:
        """Takes the record that was peeked at as delivered, or refused for good."""
        self.number = max(self.number, record.number)
        self._records.pop()

    def look(self, last: bool) -> None:
        """Asks the store what is new when `peek` comes to it. `last`: nothing more is waited for."""
        self._block, self._last = "", last

    def _read_next(self) -> bool:
        """Takes up the next part with something new in it; False if there is none now."""
        if self.name.block != self._block and not self._list():
            return False
        if self.name.part not in self._listed:
            following = min((part for part in self._listed if part > self.name.part), default=None)
            if following is None:
                return self._next_block()
            if not self._waited_enough():
                return False
            self.skipped += following - self.name.part
            self._go_to(following)
        data = self.parts.get(self.name.path)
        if data is None:  # listed, and removed since
            self._listed.discard(self.name.part)
            return True
        records, damaged, torn = _records(data)
        self._records = [record for record in reversed(records) if record.number > self.number]
        self._sending = self.name.part
        if torn and not self._records and self.name.part + 1 not in self._listed and not self._waited_enough():
            return False  # a store whose files appear before they are whole: read again at the next look
        if not torn or not self._records:
            self.damaged += damaged
            self._go_to(self.name.part + 1)
        return True

    def _list(self) -> bool:
        self._block = self.name.block
        found = (part_number(name) for name in self.parts.names(self._block))
        self._listed = {part for part in found if part is not None}
        return bool(self._listed) or self._next_block()

    def _next_block(self) -> bool:
        """Goes on in the following block if that one has begun: what is missing before it is then passed over."""
        start = (self.name.part // BLOCK_PARTS + 1) * BLOCK_PARTS
        following = self.name._replace(part=start)
        if not any(part_number(name) is not None for name in self.parts.names(following.block)):
            return False
        if start > self.name.part and not self._waited_enough():
            return False
        self.skipped += start - self.name.part
        self._go_to(start)
        return True

    def _go_to(self, part: int) -> None:
        self.name = self.name._replace(part=part)
        self.held_up_since = None

    def _waited_enough(self) -> bool:
        now = time.monotonic()
        if self.held_up_since is None:
            self.held_up_since = now
        return self._last or now - self.held_up_since >= GAP_SECONDS


def _records(data: bytes) -> tuple[list[Record], int, bool]:
    """The whole records of a part, how many places are damaged, and whether its end is."""
    records: list[Record] = []
    offset = damaged = 0
    torn = not data
    while offset < len(data):
        record, offset, lost = read_record(lambda at, size: data[at : at + size], offset, len(data))
        damaged += lost > 0
        torn = record is None
        if record is not None:
            records.append(record)
    return records, damaged, torn


class Progress(NamedTuple):
    """What one turn did. `trouble` is why something is left, `wait` how long the service should be left alone."""

    accepted: int = 0
    already_there: int = 0
    rejected: int = 0
    trouble: str = ""
    wait: float = 0.0

    @property
    def sent(self) -> int:
        """Records that were answered."""
        return self.accepted + self.already_there + self.rejected


class Puller:
    """Sends what is new in a store's remote copies to a service, turn by turn."""

    def __init__(
        self,
        store: Store,
        connection: Connection,
        *,
        again: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.parts = Parts(store)
        self._connection = connection
        self.say = say
        self._tally = Tally()
        self._state = StateFile(store.address, connection.address)
        self._places = {} if again else self._state.load()
        self._sources: dict[tuple[str, int], tuple[ProcessParts, Sender]] = {}
        self._news_at: dict[str, float] = {}
        self._turns = 0
        self._refusals = 0
        self._saved_at = time.monotonic()

    @property
    def processes(self) -> int:
        """How many processes' parts were found so far."""
        return len(self._sources)

    @property
    def damaged(self) -> int:
        """Parts that were torn, damaged or missing and passed over."""
        return sum(source.damaged + source.skipped for source, _ in self._sources.values())

    def turn(self, last: bool = False) -> Progress:
        """Sends everything that is new now. `last`: a missing or torn part is not waited for.

        Raises StoreError; what was sent until then is remembered.
        """
        self._turns += 1
        total = Progress()
        try:
            for launch in sorted(self.parts.names("")):
                if segment_of(launch) is None or not self._due(launch, last):
                    continue
                for name in sorted(self.parts.names(launch)):
                    if name.isdigit():
                        total = self._add(total, self._send(launch, int(name), last))
                        if total.wait:
                            return total
        finally:
            self.save()
        return total

    def save(self) -> None:
        """Remembers on this machine what the service has."""
        self._saved_at = time.monotonic()
        for key, (source, _) in self._sources.items():
            self._places[f"{key[0]}/{key[1]}"] = source.place
        try:
            self._state.save(self._places)
        except OSError as error:
            self._tally.say_once("state", f"cannot remember what was sent ({text_of(error)}); it will be sent again")

    def _due(self, launch: str, last: bool) -> bool:
        """Whether a launch is to be looked at in this turn."""
        news_at = self._news_at.setdefault(launch, time.monotonic())
        return last or time.monotonic() - news_at < QUIET_SECONDS or self._turns % QUIET_TURNS == 0

    def _send(self, launch: str, process: int, last: bool) -> Progress:
        source, sender = self._source(launch, process)
        before = (sender.accepted, sender.already_there, sender.refused)
        source.look(last)
        wait: float | None = 0.0
        trouble = ""
        try:
            while (wait := sender.step()) == 0:
                if time.monotonic() - self._saved_at >= SAVE_SECONDS:
                    self.save()
            trouble = sender.last_failure if wait else ""
        except NoSegmentError as error:
            trouble = str(error)
        finally:
            after = (sender.accepted, sender.already_there, sender.refused)
            accepted, there, refused = (later - earlier for later, earlier in zip(after, before, strict=True))
            new = accepted + there + refused
            if new:
                self._news_at[launch] = time.monotonic()
                self.say(f"{launch} process {process}: {new} records, through part {source.name.part - 1}")
        return Progress(accepted, there, refused, trouble, wait or 0.0)

    def _source(self, launch: str, process: int) -> tuple[ProcessParts, Sender]:
        key = (launch, process)
        if key not in self._sources:
            place = self._places.get(f"{launch}/{process}", Place())
            source = ProcessParts(self.parts, launch, process, place)
            self._sources[key] = source, Sender(source, self._connection, self._tally, self._refused)
        return self._sources[key]

    def _refused(self, record: Record, answer: Answer) -> None:
        """A refused record stays in the store, so nothing has to be kept of it here."""
        self._refusals += 1
        if self._refusals <= REFUSALS_SAID:
            self.say(
                f"refused: {record.kind} of {record.segment}, record {record.number}: {answer.status} {answer.detail}"
            )

    @staticmethod
    def _add(total: Progress, one: Progress) -> Progress:
        return Progress(
            total.accepted + one.accepted,
            total.already_there + one.already_there,
            total.rejected + one.rejected,
            total.trouble or one.trouble,
            max(total.wait, one.wait),
        )


class StateFile:
    """What of a store a service has, in the user's data folder."""

    def __init__(self, store: str, service: str) -> None:
        base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
        key = hashlib.blake2b(json.dumps([store, service]).encode(), digest_size=16).hexdigest()
        self._file = LocalStore(Path(base) / "pacenote")
        self._name = f"pulled/{key}.json"
        self._names = {"store": store, "service": service}

    def load(self) -> dict[str, Place]:
        """By `<launch>/<process>`; nothing where nothing is known."""
        try:
            saved = json.loads(self._file.get(self._name) or b"{}").get("places", {})
            return {str(name): Place(int(part), int(number)) for name, (part, number) in saved.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def save(self, places: dict[str, Place]) -> None:
        """Raises OSError."""
        self._file.put(self._name, json.dumps({**self._names, "places": places}).encode())
