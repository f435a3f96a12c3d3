"""The threads and files behind one live run, and where they come from in the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.batches import Translate
from trainer_hooks.journal import Journal
from trainer_hooks.launch import Launch
from trainer_hooks.segment import Place
from trainer_hooks.sender import Aside, Sender, SendingThread
from trainer_hooks.spool import Spool
from trainer_hooks.stores import LocalStore, check_address, default_folder, open_store
from trainer_hooks.tally import LOG, Tally, text_of
from trainer_hooks.writer import Writer, WritingThread

if TYPE_CHECKING:  # HTTP, TLS and the remote copy are imported by a run that uses them: they are half of all modules
    from trainer_hooks.remote import RemoteCopy

SHUTDOWN_SECONDS = 5.0
FIRST_PART_SECONDS = 5.0  # that a start waits for a store at most


@dataclass(frozen=True, slots=True)
class FinishReport:
    """What became of a run's records (requests to the service, each up to half a second of the run).

    `sent` were taken by the service, `left_in_spool` wait for a sync, `rejected` were refused for good and are kept
    beside the spool, `dropped` were lost to full memory or a full spool, `not_copied` are not in the remote spool, if
    there is one. `counts` says, by reason, how many single calls and values were left out.
    """

    sent: int
    left_in_spool: int
    rejected: int = 0
    dropped: int = 0
    not_copied: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Places:
    """Where records are kept: a folder of this machine, and the fsspec address of a copy, if there is to be one."""

    local: LocalStore
    remote: str = ""


class Pipeline:
    """Queue → writing thread → journal → sending thread, and a copying thread where the spool has a remote copy."""

    def __init__(
        self,
        place: Place,
        launch: Launch,
        sample_rows: int,
        tally: Tally,
        url: str,
        places: Places,
        translate: Translate | None = None,
    ) -> None:
        self.place = place
        self.tally = tally
        self.url = url
        spool, store = Spool(launch.id, place.process), places.local
        self.copy: RemoteCopy | None = None
        if places.remote:
            from trainer_hooks.remote import RemoteCopy

            self.copy = RemoteCopy(
                lambda: open_store(places.remote),
                places.remote,
                spool,
                launch.body,
                store,
                lambda: self.journal.ends(),
                tally,
            )
        self.journal = Journal(store, spool, launch.body, tally, url, also=self.copy.add if self.copy else None)
        self.writer = Writer(self.journal, place.process, sample_rows, tally, translate)
        self.writing = WritingThread(self.writer, self.journal, tally)
        self.sender: Sender | None = None
        self.sending: SendingThread | None = None
        if url:
            from trainer_hooks.connection import Connection

            connection = Connection(url, os.environ.get("PACENOTE_TOKEN", ""), os.environ.get("PACENOTE_HEADERS", ""))
            aside = Aside(store, self.journal.spool.side("rejected.jsonl"), tally)

            def when_done() -> None:
                self.journal.save()
                connection.close()

            self.sender = Sender(self.journal, connection, tally, aside.keep)
            self.sending = SendingThread(self.sender, self.journal.changed, tally, when_done)
        self.writing.start()
        for thread in (self.sending, self.copy):
            if thread is not None:
                thread.start()
        if self.copy is not None:
            from trainer_hooks.remote import before_shutdown

            before_shutdown(self._copy_before_shutdown)
            self.copy.wait_for_first(FIRST_PART_SECONDS)

    def _copy_before_shutdown(self) -> None:
        """Brings to the store what a process that ends without `finish` has recorded."""
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        if self.copy is not None and self.copy.is_alive():
            writer = self.writer
            while (writer.waiting() or writer.turning) and self.writing.is_alive() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.copy.drain(deadline - time.monotonic())

    def end(self, timeout: float, finished: bool) -> None:
        """Writes what waits, sends what there is time for, stops the threads. Returns within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self.writing.close(deadline - 0.2 * timeout, finished and self.place.process == 0)
        self.writing.written.wait(timeout)
        delivering = [thread for thread in (self.sending, self.copy) if thread is not None]
        for thread in delivering:
            thread.close()
        for thread in delivering:
            thread.done.wait(max(0.0, deadline - time.monotonic()))
            thread.abandon()
        if self.writing.done.wait(max(0.0, deadline - time.monotonic())):
            self.journal.lose_memory()
        late = self.writer.waiting()
        if late:
            self.tally.add("not written", f"{late} calls came too late to be written", late)

    def report(self) -> FinishReport:
        """What became of the records so far."""
        sender = self.sender
        sent, refused = (sender.accepted + sender.already_there, sender.refused) if sender else (0, 0)
        not_copied = self.copy.left() if self.copy is not None else 0
        return FinishReport(sent, self.journal.left(), refused, self.journal.dropped, not_copied, self.tally.snapshot())

    def say_what_is_left(self, report: FinishReport) -> None:
        """One line, if records are lost, or meant for the service and still in the spool."""
        if report.dropped:
            LOG.warning(f"pacenote: {report.dropped} records are lost: they could be neither written nor sent")
        if report.not_copied and self.copy is not None:
            LOG.warning(f"pacenote: {report.not_copied} records are not in the copy in {self.copy.address}")
        if report.left_in_spool and self.sender is not None:
            why = f" ({self.sender.last_failure})" if self.sender.last_failure else ""
            folder = self.journal.store.address
            LOG.warning(
                f"pacenote: {report.left_in_spool} records are not sent yet{why}; they are in {folder}. "
                f"Send them with: python -m trainer_hooks.sync {self.url} --spool {folder}"
            )


def choose_places(spool: str | os.PathLike[str] | None = None) -> Places:
    """Where the spool is kept, from `spool` or PACENOTE_SPOOL_DIR; nothing is opened, made or connected to yet."""
    address = os.fspath(spool) if spool is not None else os.environ.get("PACENOTE_SPOOL_DIR") or default_folder()
    if "://" not in address:
        return Places(LocalStore(Path(address).expanduser()))
    local = LocalStore(Path(default_folder()))
    try:
        check_address(address)
    except Exception as error:  # fsspec, or its package for this kind of address, is missing: a local spool beats none
        LOG.warning(
            "pacenote: no spool in %s (%s); using %s alone. Install pacenote-hooks[remote] and the fsspec package for "
            "this kind of address",
            address,
            text_of(error),
            local.address,
        )
        return Places(local)
    return Places(local, address)


def service_address(mode: str, strict: bool) -> str:
    """Where to send to, from PACENOTE_URL; empty for a run that is only spooled. Raises ValueError if `strict`."""
    url = os.environ.get("PACENOTE_URL", "").strip().rstrip("/")
    if mode == "offline":
        return ""
    if not url:
        folder = os.environ.get("PACENOTE_SPOOL_DIR") or default_folder()
        LOG.warning("pacenote: PACENOTE_URL is not set; recording to %s only, for a later sync", folder)
        return ""
    from trainer_hooks.connection import parse_address, parse_headers, parse_token

    try:
        parse_address(url)
        parse_headers(os.environ.get("PACENOTE_HEADERS", ""))
        parse_token(os.environ.get("PACENOTE_TOKEN", ""))
    except ValueError as error:
        if strict:
            raise
        LOG.warning("pacenote: nothing is sent, only recorded for a later sync: %s", error)
        return ""
    return url
