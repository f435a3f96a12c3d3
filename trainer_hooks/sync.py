"""Sends what is in a spool or its remote copy: `python -m trainer_hooks.sync [ADDRESS] [--spool DIR] [--watch]`.

Every record may be sent any number of times, by anyone; the service takes it once.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer_hooks.connection import Connection
from trainer_hooks.pull import Progress, Puller, StoreError
from trainer_hooks.sender import NO_ANSWER, Aside, Sender
from trainer_hooks.spool import Cursor, Position, Record, Spool, load_position, part_ends, read_record, save_position
from trainer_hooks.stores import Store, default_folder, open_store
from trainer_hooks.tally import Tally

PATIENCE_SECONDS = 60.0
SAVE_SECONDS = 1.0
WATCH_SECONDS = 5.0
LONGEST_PAUSE = 60.0  # between attempts to reach a store


@dataclass(slots=True)
class SyncReport:
    """Records of one sync. `sent` = `accepted` + `already_there` + `rejected`; `left` were not answered.

    `already_sent` were acknowledged before by this address and not sent again; `damaged` counts places where a spool
    was torn or damaged; `in_use` the spools that a living process still sends itself; `trouble` says why something of
    a store or a service is missing.
    """

    sent: int = 0
    accepted: int = 0
    already_there: int = 0
    rejected: int = 0
    left: int = 0
    already_sent: int = 0
    damaged: int = 0
    in_use: int = 0
    spools: int = 0
    trouble: str = ""

    @property
    def complete(self) -> bool:
        """Whether the service now has every whole record it was sent."""
        return self.left == 0 and not self.trouble and self.sent == self.accepted + self.already_there

    def __str__(self) -> str:
        text = (
            f"sent {self.sent:,}  accepted {self.accepted:,}  already there {self.already_there:,}  "
            f"rejected {self.rejected:,}"
        )
        for count, what in (
            (self.left, "left"),
            (self.already_sent, "sent earlier"),
            (self.damaged, "damaged places passed over"),
            (self.in_use, "spools in use by a living process, left to it"),
        ):
            text += f"  {what} {count:,}" if count else ""
        return text


class _SpoolSource:
    """A spool that no living process writes, or one that is `growing`."""

    def __init__(
        self, store: Store, spool: Spool, ends: dict[int, int], address: str, again: bool, growing: bool = False
    ) -> None:
        self.store = store
        self.spool = spool
        self.address = address
        position = Position() if again else load_position(store, spool, address)
        self.already_sent = position.number + 1
        self.cursor = Cursor(store, spool, position, ends, growing)
        self._ends = ends
        self._saved_at = time.monotonic()

    @property
    def segment(self) -> Record:
        """The segment's record, from the beginning of the first part where it is whole."""
        for part, end in sorted(self._ends.items()):
            first = read_record(self.store.reader(self.spool.part(part)), 0, end).record
            if first is not None and first.kind == "segment":
                return first
        raise ValueError(f"the description of segment {self.spool.segment} is damaged in every part of its spool")

    def peek(self) -> Record | None:
        return self.cursor.peek()

    def acknowledge(self, record: Record) -> None:
        self.cursor.acknowledge(record.number)
        if time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Remembers what the service has. Where files cannot grow, what was sent is removed instead."""
        self._saved_at = time.monotonic()
        if self.store.appends:
            save_position(self.store, self.spool, self.address, self.cursor.position)

    def close(self) -> int:
        """Saves; returns how many whole records are left."""
        self.save()
        left = 0
        position = self.cursor.position
        at = Position(position.part, position.offset, position.number)
        rest = Cursor(self.store, self.spool, at, self._ends)
        while (record := rest.peek()) is not None:
            rest.acknowledge(record.number)
            left += 1
        if not left and not self.store.appends:
            for part in self._ends:
                self.store.remove(self.spool.part(part))
        return left


def sync(
    address: str,
    spool: str | None = None,
    *,
    token: str | None = None,
    headers: str | None = None,
    again: bool = False,
    patience: float = PATIENCE_SECONDS,
    say: Callable[[str], None] = lambda line: None,
) -> SyncReport:
    """Sends every spool in `spool` (a folder or an fsspec address) that no living process writes to `address`, and what
    the copies there hold that processes made (trainer_hooks.start with an fsspec address).

    `again` also sends what this address acknowledged before (after a database was restored, say). Gives up on a service
    that has not taken anything for `patience` seconds. `say` gets one line for each spool. Token, headers and folder
    default to the environment's. Raises ValueError for an address that is none; trouble on the way is in the report.
    """
    store, connection = _open(address, spool, token, headers)
    total = SyncReport()
    try:
        for name, ends in part_ends(store).items():
            if any(store.in_use(name.part(part)) for part in ends):
                total.in_use += 1
                say(f"{name.segment} process {name.process}: in use by a living process")
                continue
            source = _SpoolSource(store, name, ends, connection.address, again)
            # A service that does not even answer is not tried again for every spool.
            silent = total.trouble.startswith(NO_ANSWER)
            report = SyncReport(left=source.close(), spools=1) if silent else _send(connection, source, patience)
            say(f"{name.segment} process {name.process}: {report}")
            _add(total, report)
        if not total.trouble.startswith(NO_ANSWER):
            _add(total, _pull_once(Puller(store, connection, again=again, say=say), patience))
    finally:
        connection.close()
    return total


def watch(
    address: str,
    spool: str | None = None,
    *,
    token: str | None = None,
    headers: str | None = None,
    again: bool = False,
    every: float = WATCH_SECONDS,
    say: Callable[[str], None] = lambda line: None,
    pause: Callable[[float], object] = time.sleep,
) -> SyncReport:
    """As `sync`, over and over, until KeyboardInterrupt (out of `pause`, too): launches, processes and records are sent
    as they appear, those of living processes included.

    A store or a service that fails is tried again for ever; `say` hears of each trouble once.
    """
    store, connection = _open(address, spool, token, headers)
    puller = Puller(store, connection, again=again, say=say)
    total = SyncReport()
    sizes: dict[Spool, dict[int, int]] = {}
    said, failures = "", 0
    try:
        while True:
            trouble, wait = "", 0.0
            try:
                _send_spools(store, connection, again, sizes, total, say)
                progress = puller.turn()
                _count(total, puller, progress)
                trouble, wait = progress.trouble, progress.wait
                failures = failures + 1 if wait else 0
            except (StoreError, OSError) as error:
                failures += 1
                trouble = str(error)
            if trouble and trouble != said:
                say(f"trying on: {trouble}")
            said = trouble
            pause(max(every, wait, min(LONGEST_PAUSE, 2.0 ** min(failures, 10)) if failures else 0.0))
    except KeyboardInterrupt:
        puller.save()
        return total
    finally:
        puller.parts.close()
        connection.close()


def _open(address: str, spool: str | None, token: str | None, headers: str | None) -> tuple[Store, Connection]:
    token = os.environ.get("PACENOTE_TOKEN", "") if token is None else token
    headers = os.environ.get("PACENOTE_HEADERS", "") if headers is None else headers
    connection = Connection(address, token, headers)
    return open_store(spool or os.environ.get("PACENOTE_SPOOL_DIR") or default_folder()), connection


def _pull_once(puller: Puller, patience: float) -> SyncReport:
    report = SyncReport()
    patient_until = time.monotonic() + patience
    try:
        while True:
            progress = puller.turn(last=True)
            _count(report, puller, progress)
            if progress.sent:
                patient_until = time.monotonic() + patience
            if not progress.wait or time.monotonic() + progress.wait > patient_until:
                break
            time.sleep(progress.wait)
        report.trouble = progress.trouble
    except StoreError as error:
        report.trouble = str(error)
    finally:
        puller.parts.close()
    if report.spools:
        puller.say(f"remote copies of {report.spools} processes: {report}")
    return report


def _count(report: SyncReport, puller: Puller, progress: Progress) -> None:
    report.accepted += progress.accepted
    report.already_there += progress.already_there
    report.rejected += progress.rejected
    report.sent += progress.sent
    report.spools = max(report.spools, puller.processes)
    report.damaged = max(report.damaged, puller.damaged)


def _send_spools(
    store: Store,
    connection: Connection,
    again: bool,
    sizes: dict[Spool, dict[int, int]],
    total: SyncReport,
    say: Callable[[str], None],
) -> None:
    """Sends what is new in spools that are files of a folder. `sizes`: what they were when they were last sent."""
    for name, ends in part_ends(store).items():
        if sizes.get(name) == ends:
            continue
        seen = dict(ends)
        report = _send(
            connection, _SpoolSource(store, name, ends, connection.address, again and name not in sizes, True), 0.0
        )
        if report.sent:
            say(f"{name.segment} process {name.process}: {report.sent} records")
        for field in ("sent", "accepted", "already_there", "rejected"):
            setattr(total, field, getattr(total, field) + getattr(report, field))
        if report.trouble:
            raise OSError(report.trouble)
        sizes[name] = seen


def _send(connection: Connection, source: _SpoolSource, patience: float) -> SyncReport:
    tally = Tally()
    report = SyncReport(spools=1, already_sent=source.already_sent)
    aside = Aside(source.store, source.spool.side("rejected.jsonl"), tally)
    sender = Sender(source, connection, tally, aside.keep)
    patient_until = time.monotonic() + patience
    try:
        while (wait := sender.step()) is not None:
            if wait == 0:
                patient_until = time.monotonic() + patience
            elif time.monotonic() + wait > patient_until:
                report.trouble = sender.last_failure
                break
            else:
                time.sleep(wait)
    except Exception as error:  # a spool without a description, a store that fails
        report.trouble = str(error) or type(error).__name__
    report.left = source.close()
    report.accepted, report.already_there = sender.accepted, sender.already_there
    report.rejected = sender.refused
    report.sent = report.accepted + report.already_there + report.rejected
    report.damaged = source.cursor.damaged_places
    return report


def _add(total: SyncReport, report: SyncReport) -> None:
    for field in ("sent", "accepted", "already_there", "rejected", "left", "already_sent", "damaged", "spools"):
        setattr(total, field, getattr(total, field) + getattr(report, field))
    total.trouble = total.trouble or report.trouble


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns 0 if the service has everything, 1 if something is left, 2 if it refused something."""
    parser = argparse.ArgumentParser(prog="python -m trainer_hooks.sync", description=__doc__)
    parser.add_argument("address", nargs="?", default=os.environ.get("PACENOTE_URL"), help="default: PACENOTE_URL")
    parser.add_argument("--spool", help="a folder or fsspec address (default: PACENOTE_SPOOL_DIR, else the user's)")
    parser.add_argument("--again", action="store_true", help="send also what was acknowledged before")
    parser.add_argument("--watch", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument("--every", type=float, default=WATCH_SECONDS, help="seconds between two looks of --watch")
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help="seconds to go on without success")
    chosen = parser.parse_args(arguments)
    if not chosen.address:
        parser.error("no address: name one, or set PACENOTE_URL")
    try:
        if chosen.watch:
            report = watch(chosen.address, chosen.spool, again=chosen.again, every=chosen.every, say=print)
        else:
            report = sync(chosen.address, chosen.spool, again=chosen.again, patience=chosen.patience, say=print)
    except (ValueError, OSError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    if report.spools != 1 or report.in_use:
        print(f"{report.spools} spools: {report}")
    if report.trouble:
        print(f"not everything was sent: {report.trouble}", file=sys.stderr)
    if report.rejected:
        print("what the service rejected is kept beside the spool as *.rejected.jsonl, or in its copy", file=sys.stderr)
    return 1 if report.left or report.trouble else 2 if report.rejected else 0


if __name__ == "__main__":
    sys.exit(main())
