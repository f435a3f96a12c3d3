"""Tells the listeners of this process what other processes on the same database have changed.

The database is the source: it is looked at every second. What this process has told by itself is known by the numbers
in its notices and not told again; where that cannot be known for sure it is, since listeners read what they are told
about, and twice is harmless.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from service.broker import Broker, Notice
from service.database.engine import reading
from service.events.repository import OVERLAP, EventRepository, RunSubject, Sending

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0  # seconds
RECENT = 600.0  # seconds back that a look goes: more than the clocks of two machines are apart


@dataclass(slots=True)
class _Known:
    """What listeners of this process have been told."""

    data: dict[int, int] = field(default_factory=dict[int, int])
    verdicts: dict[int, tuple[float, str]] = field(default_factory=dict[int, tuple[float, str]])
    event: int = 0
    pending: dict[int, int] = field(default_factory=dict[int, int])
    settings: set[int] = field(default_factory=set[int])
    written: tuple[object, ...] = ()
    written_of_runs: dict[int, tuple[object, ...]] = field(default_factory=dict[int, tuple[object, ...]])


@dataclass(slots=True)
class _Own:
    """What this process told since the last look: newest version of data, time of verdict, changes, messages."""

    data: dict[str, int] = field(default_factory=dict[str, int])
    verdicts: dict[str, float] = field(default_factory=dict[str, float])
    changes: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    others: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])


class Elsewhere:
    """A thread that looks at the database; `look` is one look. What is there when it starts is told to nobody."""

    def __init__(self, engine: Engine, broker: Broker, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._broker = broker
        self._clock = clock
        self._known: _Known | None = None
        self._own = _Own()
        self._lock = threading.Lock()
        self._failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="elsewhere", daemon=True)
        broker.overheard_by(self._hear)

    def start(self) -> None:
        """Tell from now on."""
        self._try()
        self._thread.start()

    def stop(self) -> None:
        """End within a look."""
        self._stopping.set()
        self._thread.join(2.0)

    def look(self) -> int:
        """Tell what is new since the last look; how many notices that were."""
        with self._lock:
            own, self._own = self._own, _Own()
        since = self._clock() - RECENT
        notices: list[tuple[str, dict[str, Any]]] = []
        with reading(self._engine) as session:
            repository = EventRepository(session)
            if self._known is None:
                self._known = _begin(repository, since)
                return 0
            notices += _runs(repository, self._known, own, since)
            notices += _alerts(repository, self._known, own)
            notices += _messages(repository, self._known, own)
            notices += _people(repository, self._known, own)
        for kind, body in notices:
            self._broker.publish(kind, body, heard=False)
        return len(notices)

    def _hear(self, notice: Notice) -> None:
        """Keep what this process has told by itself. Called by whoever published it."""
        body = notice.body
        run = str(body.get("run"))
        with self._lock:
            if notice.kind == "points":
                self._own.data[run] = max(self._own.data.get(run, 0), body.get("version", 0))
            elif notice.kind == "verdict":
                self._own.verdicts[run] = max(self._own.verdicts.get(run, 0.0), body.get("at", 0.0))
            elif notice.kind == "alert" and "number" in body:
                self._own.changes.add((body["alert"], body["number"]))
            elif notice.kind == "delivery":
                self._own.others.add(("delivery", body["delivery"]))
            elif notice.kind in ("run", "settings"):
                self._own.others.add((notice.kind, run if "run" in body else body["project"]))

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY):
            self._try()

    def _try(self) -> None:
        try:
            self.look()
            self._failing = False
        except DBAPIError as error:
            if not self._failing:  # once: the other tasks say it too
                log.error("cannot look for changes by other processes: %s", " ".join(str(error.orig).split()))
            self._failing = True
        except Exception:  # a thread that dies would be missed by nobody
            log.exception("looking for changes by other processes failed; it goes on")


Notices = list[tuple[str, dict[str, Any]]]


def _begin(repository: EventRepository, since: float) -> _Known:
    newest = repository.newest_setting()
    return _Known(
        {run_id: version for run_id, (version, _) in repository.data_since(since).items()},
        repository.verdicts_since(since),
        repository.newest_alert_event(),
        repository.pending(),
        {key for key, _, _ in repository.settings_after(newest - OVERLAP)},
        repository.hand_written(),
        repository.hand_written_of_runs(),
    )


def _runs(repository: EventRepository, known: _Known, own: _Own, since: float) -> Notices:
    """New data, then new verdicts."""
    data, verdicts = repository.data_since(since), repository.verdicts_since(since)
    newer = {run: found for run, found in data.items() if found[0] != known.data.get(run)}
    before, known.verdicts = known.verdicts, verdicts
    judged = {run: found for run, found in verdicts.items() if found != before.get(run)}
    known.data = {run: version for run, (version, _) in data.items()}
    subjects = repository.subjects(newer.keys() | judged.keys())
    notices: Notices = []
    for run_id, (version, step) in newer.items():
        subject = subjects[run_id]
        if version > own.data.get(str(subject.uuid), -1):
            notices.append(("points", {**_named(subject), "last_step": step, "version": version}))
    for run_id, (at, state) in judged.items():
        subject = subjects[run_id]
        if at > own.verdicts.get(str(subject.uuid), -1.0):
            changed = run_id not in before or before[run_id][1] != state
            notices.append(("verdict", {**_named(subject), "state": state, "changed": changed, "at": at}))
    return notices


def _alerts(repository: EventRepository, known: _Known, own: _Own) -> Notices:
    found = repository.alert_events(known.event)
    if not found:
        return []
    known.event = found[-1].event
    subjects = repository.subjects({event.run_id for event in found})
    notices: Notices = []
    for event in found:
        if (str(event.alert), event.number) in own.changes:
            continue
        body = {"alert": str(event.alert), "family": event.family, "change": event.kind, "state": event.state}
        notices.append(("alert", {**_named(subjects[event.run_id]), **body, "number": event.number}))
    return notices


def _messages(repository: EventRepository, known: _Known, own: _Own) -> Notices:
    """Messages that were tried since. One that came and went between two looks is told with its alert's change."""
    before, now = known.pending, repository.pending()
    known.pending = now
    moved = [key for key, attempts in before.items() if now.get(key) != attempts]
    found: list[Sending] = repository.sendings(moved) if moved else []
    subjects = repository.subjects({sending.run_id for sending in found})
    return [
        (
            "delivery",
            {
                "delivery": str(sending.delivery),
                "state": sending.state,
                "alert": str(sending.alert),
                **_named(subjects[sending.run_id]),
            },
        )
        for sending in found
        if ("delivery", str(sending.delivery)) not in own.others
    ]


def _people(repository: EventRepository, known: _Known, own: _Own) -> Notices:
    """What people changed: how something is judged, notes beside runs, what is archived."""
    notices: Notices = []
    settings = repository.settings_after(max(known.settings, default=0) - OVERLAP)
    for project, run in dict.fromkeys((project, run) for key, project, run in settings if key not in known.settings):
        if ("settings", project if run is None else str(run)) not in own.others:
            notices.append(("settings", {"project": project} | ({} if run is None else {"run": str(run)})))
    known.settings = {key for key, _, _ in settings}
    written = repository.hand_written()
    if written != known.written:
        before, now = known.written_of_runs, repository.hand_written_of_runs()
        known.written, known.written_of_runs = written, now
        moved = [run for run in before.keys() | now.keys() if before.get(run) != now.get(run)]
        for subject in repository.subjects(moved).values():
            if ("run", str(subject.uuid)) not in own.others:
                notices.append(("run", _named(subject)))
    return notices


def _named(subject: RunSubject) -> dict[str, Any]:
    return {"run": str(subject.uuid), "project": subject.project}
