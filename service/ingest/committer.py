"""Group commit: one thread writes what all requests of this process bring, many requests in one transaction."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from service.broker import Broker
from service.database.engine import write_transaction, writing
from service.errors import ProblemError
from service.ingest.facts import Facts
from service.ingest.repository import Changed, IngestRepository, Outcome
from service.ingest.requests import Accepted, Post, Put
from service.ingest.segments import put_segment

MOST_AT_ONCE = 256
MOST_WAITING = 2000

_log = logging.getLogger(__name__)


class BusyError(ProblemError):
    """The request was not written; sending it again later is right."""

    status = 503
    title = "Service unavailable"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": "1"})


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Post | Put
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Accepted]


class Committer:
    """Writes requests in the order in which they come. An answer is given only once its transaction is committed."""

    def __init__(self, engine: Engine, broker: Broker) -> None:
        self._engine = engine
        self._broker = broker
        self._facts = Facts()
        self._queue: deque[_Waiting] = deque()
        self._wake = threading.Condition()
        self._open = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to take requests."""
        self._open = True
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what was taken, then end."""
        with self._wake:
            self._open = False
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    async def submit(self, request: Post | Put) -> Accepted:
        """Wait until the request is committed.

        Raises:
            ProblemError: it was refused (404, 409, 413, 422), or could not be written now (503).
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, loop, loop.create_future())
        with self._wake:
            if not self._open:
                raise BusyError("The service is shutting down. Send this again.")
            if len(self._queue) >= MOST_WAITING:
                raise BusyError("Too many requests are waiting to be written. Send this again.")
            self._queue.append(waiting)
            self._wake.notify()
        return await waiting.answer

    def _work(self) -> None:
        while group := self._next():
            outcomes, changed = self._commit([waiting.request for waiting in group])
            _deliver(group, outcomes)
            for run in changed:
                self._broker.publish(
                    "points",
                    {"project": run.project, "run": str(run.run), "last_step": run.last_step, "version": run.version},
                )

    def _next(self) -> list[_Waiting]:
        """The next requests; none once the committer is stopped and all is written."""
        with self._wake:
            while self._open and not self._queue:
                self._wake.wait()
            return [self._queue.popleft() for _ in range(min(len(self._queue), MOST_AT_ONCE))]

    def _commit(self, requests: Sequence[Post | Put]) -> tuple[list[Outcome], list[Changed]]:
        """Puts one by one, since posts rest on them, then all posts together."""
        outcomes: dict[int, Outcome] = {}
        for index, request in enumerate(requests):
            if isinstance(request, Put):
                outcomes[index] = self._put(request)
        posts = [(index, request) for index, request in enumerate(requests) if isinstance(request, Post)]
        written, changed = self._post([post for _, post in posts]) if posts else ([], [])
        outcomes.update(zip((index for index, _ in posts), written, strict=True))
        return [outcomes[index] for index in range(len(requests))], changed

    def _put(self, put: Put) -> Outcome:
        try:
            with writing(self._engine) as session:
                return put_segment(session, put)
        except ProblemError as error:
            return error
        except Exception:
            _log.exception("Could not write segment %s", put.segment)
            return BusyError("The database did not take this. Send it again.")

    def _post(self, posts: Sequence[Post]) -> tuple[list[Outcome], list[Changed]]:
        try:
            with write_transaction(self._engine) as connection:
                return IngestRepository(connection, self._facts).apply(posts)
        except Exception:
            self._facts.forget()
            if len(posts) == 1:
                post = posts[0]
                _log.exception("Could not write %s %s of segment %s", post.kind, post.seq, post.segment)
                return [BusyError("The database did not take this. Send it again.")], []
        outcomes: list[Outcome] = []
        changed: list[Changed] = []
        for post in posts:  # one of them is at fault: the others must not suffer
            outcome, runs = self._post([post])
            outcomes += outcome
            changed += runs
        return outcomes, changed


def _deliver(group: Sequence[_Waiting], outcomes: Sequence[Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Accepted], Outcome]]] = {}
    for waiting, outcome in zip(group, outcomes, strict=True):
        by_loop.setdefault(waiting.loop, []).append((waiting.answer, outcome))
    for loop, answers in by_loop.items():
        try:
            loop.call_soon_threadsafe(_answer, answers)
        except RuntimeError:  # that loop has ended, and with it who waited
            continue


def _answer(answers: Sequence[tuple[asyncio.Future[Accepted], Outcome]]) -> None:
    for future, outcome in answers:
        if future.done():  # its client has gone
            continue
        if isinstance(outcome, ProblemError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
