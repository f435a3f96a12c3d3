"""The background tasks of a service process: sealing, judging, delivering. The database is their queue.

Notices of this process wake them at once; a timer finds what other processes on the same database have written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy import and_, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from service.alerts.due import act_on_time
from service.alerts.pictures import Pictures
from service.channels.sending import Sender
from service.channels.vault import vault_of
from service.context import Context
from service.database.models import Journal, Run, RunState, RunWork
from service.judgements.repository import JudgementRepository
from service.worker.deliver import Deliverer
from service.worker.judge import Judge
from service.worker.seal import seal_due

log = logging.getLogger(__name__)

SEAL_EVERY = 5.0  # seconds between looks where no notice comes
LOOK_EVERY = 1.0
GATHER = 0.05  # notices of points that come within this time are one
REST_AFTER_ERROR = 2.0


class Worker:
    """Four threads; `stop` ends them within two seconds and leaves nothing half done."""

    def __init__(self, context: Context) -> None:
        settings, engine, broker = context.settings, context.engine, context.broker
        self._broker = broker
        self._judge = Judge(
            engine,
            broker,
            settings.base_url,
            clear_seconds=settings.alert_clear_seconds,
            clear_level=settings.alert_clear_level,
            most_bytes=settings.judging_memory_mib * 2**20,
        )
        self._deliverer = Deliverer(
            engine,
            broker,
            Sender(allow_private=settings.allow_private_channels),
            lambda: vault_of(settings),
            on_free=lambda: self._deliver.wake(),
            pictures=Pictures(engine, lambda: vault_of(settings), settings.base_url, links=settings.picture_links),
        )
        self._seal = _Task("seal", lambda: _seal(context))
        self._judging = _Task("judge", lambda: min(self._judge.judge_some(), LOOK_EVERY), pause=GATHER)
        self._deliver = _Task("deliver", lambda: 0.0 if self._deliverer.deliver_due() else LOOK_EVERY)
        self._time = _Task("alert clock", lambda: _pass_time(context))
        self._tasks = {"points": [self._judging], "settings": [self._judging], "alert": [self._deliver]}
        self._listener: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin working, first on what was left by the process before."""
        ready = threading.Event()
        self._listener = threading.Thread(target=self._listen, args=(ready,), name="worker-listen", daemon=True)
        self._listener.start()
        ready.wait()
        for task in (self._seal, self._judging, self._deliver, self._time):
            task.start()

    def stop(self) -> None:
        """End. A judgement in progress is finished; a message in progress is broken off and sent again later."""
        if self._loop is not None and self._listening is not None:
            self._loop.call_soon_threadsafe(self._listening.cancel)
        tasks = (self._seal, self._judging, self._deliver, self._time)
        for task in tasks:
            task.ask_to_stop()
        self._deliverer.stop()
        for task in tasks:
            task.join()
        if self._listener is not None:
            self._listener.join(1.0)

    def _listen(self, ready: threading.Event) -> None:
        async def listen() -> None:
            self._loop, self._listening = asyncio.get_running_loop(), asyncio.current_task()
            with self._broker.listening() as notices:
                ready.set()
                while True:
                    notice = await notices.get()
                    for task in self._tasks.get(notice.kind, ()):
                        task.wake()

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(listen())


class _Task:
    """A thread that calls `work` when woken, and after the seconds it returned; never twice within `pause` seconds."""

    def __init__(self, name: str, work: Callable[[], float], pause: float = 0.0) -> None:
        self._name = name
        self._work = work
        self._pause = pause
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"worker-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._awake.set()

    def ask_to_stop(self) -> None:
        self._stopping.set()
        self._awake.set()

    def join(self, timeout: float = 2.0) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        rest = self._pause
        while not self._stopping.wait(self._pause if rest > 0 else 0.0):
            self._awake.clear()
            try:
                rest = self._work()
            except DBAPIError as error:  # the database's trouble: where in our code says nothing
                reason = " ".join(str(error.orig).split())
                log.error("the %s task failed (%s); it goes on in %.0f s", self._name, reason, REST_AFTER_ERROR)
                rest = REST_AFTER_ERROR
            except Exception:  # a task that dies would be missed by nobody
                log.exception("the %s task failed; it goes on in %.0f s", self._name, REST_AFTER_ERROR)
                rest = REST_AFTER_ERROR
            if rest > 0 and not self._stopping.is_set():
                self._awake.wait(rest)


def _seal(context: Context) -> float:
    seal_due(context.engine)
    return SEAL_EVERY


def _pass_time(context: Context) -> float:
    act_on_time(context.engine, context.broker, context.settings.base_url, time.time())
    return LOOK_EVERY


def lag(session: Session, now: float | None = None) -> float:
    """Seconds that the oldest data waits to be judged, over all runs; 0 where nothing waits.

    The age of the oldest unsealed batch that came after the run's last judgement; where all of them are sealed already,
    that of the newest data, which is a lower bound.
    """
    now = time.time() if now is None else now
    waiting = {found.run_id for found in JudgementRepository(session).due()}
    if not waiting:
        return 0.0
    done_at = func.coalesce(RunWork.done_at, 0.0)
    oldest = (
        select(func.min(Journal.received_at))
        .where(Journal.run_id == Run.id, Journal.received_at > done_at)
        .correlate(Run, RunWork)
        .scalar_subquery()
    )
    found = (
        select(func.min(func.coalesce(oldest, RunState.last_data_at, now)))
        .select_from(Run)
        .join(RunState, RunState.run_id == Run.id)
        .outerjoin(RunWork, and_(RunWork.run_id == Run.id, RunWork.task == "judge"))
        .where(Run.id.in_(waiting))
    )
    first = session.scalar(found)
    return max(0.0, now - (now if first is None else float(first)))
