"""`audit`: runs a loader factory as many hosts, one after another, and says which rows are read how often, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trainer_hooks.loader_audit.causes import BETWEEN, because, legally_dropped, why
from trainer_hooks.loader_audit.counting import (
    KEPT,
    OWN_SHUFFLE,
    WORKERS,
    Expected,
    Tally,
    expect,
    order,
    tally,
)
from trainer_hooks.loader_audit.hosts import Factory, Host, simulated_hosts
from trainer_hooks.loader_audit.keys import Key, RowKeys
from trainer_hooks.loader_audit.reading import AuditError, LoaderError, Progress, Reader, Stream
from trainer_hooks.loader_audit.report import Cause, Pass, Report
from trainer_hooks.loader_audit.resuming import (
    NOT_FIXED,
    REFUSED,
    Resume,
    joined,
    legally_dropped_after,
    why_resumed,
)

BEYOND = 256  # rows that are read past one pass of an endless loader, to see whether they are the same rows again
FAILED = Cause("the loader fails", "")


def audit(
    make_loader: Callable[..., Any],
    hosts: Sequence[int] = (1, 4, 16),
    workers: Sequence[int] = (0, 2),
    *,
    records: int | None = None,
    resume_at: int | None = None,
    resume_hosts: Sequence[int] | None = None,
    resume_workers: int | None = None,
    state_host: int = 0,
    key: Key = None,
    batched: bool = True,
    padding: int | None = None,
    same_order: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Reads one pass over the data as each number of `hosts` × `workers`, and compares it with what one host reads.

    `make_loader` makes the loader of one host: any iterable of batches. Of process_index, process_count, worker_count
    and start_step it is given by name those that it takes; meanwhile `jax.process_index()` and `jax.process_count()`
    answer as that host too. Without worker_count only the first of `workers` is tried.

    Args:
        records: rows of one pass; needed for a loader that never ends.
        resume_at: also stop each run after so many batches a host and resume it: by a factory that takes start_step,
            else by `get_state` and `set_state` of its iterator.
        resume_hosts: host counts to resume on; by default the same.
        resume_workers: workers to resume with; by default the same.
        state_host: on another host count all hosts get the state of this one; on the same each gets its own.
        key: what a row is known by, if not its content: a field's name, or a function of a batch.
        batched: False for loaders of single rows.
        padding: rows of this token alone are left out.
        same_order: whether an order that depends on the number of hosts is a fault, rather than a note.
        progress: called with what is being read.

    Raises:
        ValueError: (AuditError) an argument, or a loader that does not end although `records` is not given.
        TypeError: the factory takes arguments that an audit cannot give.

    A factory or loader that raises is a fault of that pass, in the report. Memory: about 200 bytes per row of a pass.
    """
    hosts, workers = _whole("hosts", hosts, 1), _whole("workers", workers, 0)
    targets = None if resume_hosts is None else _whole("resume_hosts", resume_hosts, 1)
    for name, value, least in (
        ("records", records, 1), ("resume_at", resume_at, 1), ("resume_workers", resume_workers, 0)
    ):  # fmt: skip
        if value is not None:
            _whole(name, [value], least)
    if resume_at is None and (targets is not None or resume_workers is not None):
        raise AuditError("resume_hosts and resume_workers need resume_at, the batches after which a run is stopped")
    factory = Factory(make_loader)
    with simulated_hosts() as simulation:
        reader = Reader(factory, RowKeys(key, batched, padding), simulation, progress)
        session = _Audit(reader, records, same_order, state_host)
        if not factory.takes_workers and set(workers) != {workers[0]}:
            session.notes.append("The factory takes no worker_count: it was not tried with others.")
            workers = workers[:1]
        if not session.begin():
            return session.report()
        for count in hosts:
            for number in workers:
                session.whole(count, number, resume_at)
                if resume_at is not None:
                    for target in targets or (count,):
                        after = number if resume_workers is None else resume_workers
                        session.resume(count, number, resume_at, target, after)
        return session.report()


def assert_reads_each_row_once(make_loader: Callable[..., Any], **arguments: Any) -> Report:
    """For tests: `audit` with the same arguments. Raises AssertionError with the report where it finds a fault."""
    report = audit(make_loader, **arguments)
    if not report.ok:
        raise AssertionError(str(report))
    return report


class _Audit:
    """One audit: what a single host reads, and the passes so far."""

    def __init__(self, reader: Reader, records: int | None, same_order: bool, state_host: int) -> None:
        self.reader = reader
        self.records = records
        self.same_order = same_order
        self.state_host = state_host
        self.notes: list[str] = []
        self.passes: list[Pass] = []
        self._expected: Expected | None = None
        self.leak: Cause | None = None
        self.fixed = True
        self.last: tuple[list[Stream], Pass] | None = None  # of the whole pass just read, to be resumed
        self._reads: dict[int, int] = {}  # by hosts, without workers

    @property
    def expected(self) -> Expected:
        """What the single host read."""
        assert self._expected is not None
        return self._expected

    def report(self) -> Report:
        return Report(tuple(self.passes), tuple(self.notes))

    def begin(self) -> bool:
        """Reads the data as one host. False if that fails, which is in the report then."""
        single = Host(0, 1)
        try:
            stream = self.reader.read(
                single, None if self.records is None else self.records + min(self.records, BEYOND)
            )
            again = self.reader.read(single, 1)
        except LoaderError as error:
            self._failed(1, 0, error)
            return False
        rows = len(stream.keys)
        if not rows:
            raise AuditError("the loader of a single host yields no rows: is a batch larger than the data?")
        self.fixed = (again.keys == stream.keys[: len(again.keys)]).all()
        if not self.fixed:
            self.notes.append("Two starts of one host read different rows: the shuffle has no fixed seed.")
        if stream.ended and (self.records is None or rows <= self.records + stream.batch):
            total = max(rows, self.records or 0)
            loose = total - rows if self.records else max(stream.batch - 1, 0)
            self._expected = expect(stream, total, loose)
            if total - rows >= max(stream.batch, 1):
                self.notes.append(f"A single host reads only {rows:,} of {total:,} rows.")
        elif stream.ended:
            self.notes.append(f"records= is {self.records:,}, but a single host reads {rows:,} rows and ends.")
            self._expected = expect(stream, rows, max(stream.batch - 1, 0))
        else:
            self._endless(stream, self.records or rows)
        if len(self.expected.keys) < int(self.expected.counts.sum()):
            same = int(self.expected.counts.sum()) - len(self.expected.keys)
            self.notes.append(
                f"{same:,} of a single host's rows have the content of another; each may be read as often."
            )
        return True

    def _endless(self, stream: Stream, rows: int) -> None:
        first, beyond = stream.first(rows), stream.keys[rows:]
        self._expected = expect(first, rows, 0)
        new = self.expected.where(beyond) < 0
        if len(beyond) and new[: min(64, len(beyond))].all():
            self._expected = self.expected._replace(partial=True)
            self.notes.append(f"{rows:,} rows are less than one pass over the data: rows never read cannot be told.")
        elif new.any():
            text = f"After {rows:,} rows a single host reads others: {new.mean():.0%} of the next {len(beyond):,}."
            self.leak = because(BETWEEN, text)

    def _most(self, rows: int, hosts: int) -> int | None:
        return None if self.expected.ended else max(rows // hosts, 0)

    def _cut(self, stream: Stream, most: int | None, workers: int) -> Stream:
        """An endless loader's rows up to the end of a pass; of workers that take turns, only their whole rounds."""
        if most is None:
            return stream
        round_rows = stream.batch * workers if workers > 1 else 1
        return stream.first(most // max(round_rows, 1) * round_rows)

    def whole(self, hosts: int, workers: int, save_at: int | None) -> None:
        """Reads a whole pass."""
        self.last = None
        expected = self.expected
        most = self._most(expected.rows, hosts)
        past = expected.rows + BEYOND  # of loaders that should end and do not
        try:
            streams = [
                self._cut(self.reader.read(host, past if most is None else most, save_at=save_at), most, workers)
                for host in (Host(index, hosts, workers) for index in range(hosts))
            ]
        except LoaderError as error:
            self._failed(hosts, workers, error)
            return
        found = tally(expected, streams)
        if not workers:
            self._reads[hosts] = found.read
        kind = order(expected, streams) if self.fixed else ""
        causes = why(expected, streams, found, workers, self._reads.get(hosts), kind)
        if self.same_order and kind not in (KEPT, ""):
            causes = [_fault(cause) for cause in causes]
        if self.leak is not None:
            causes.append(self.leak)
        if workers and kind == OWN_SHUFFLE:
            kind = WORKERS if hosts == 1 else kind
        one = self._pass(hosts, workers, found, streams, causes, legally_dropped(expected, streams, found), kind)
        self.passes.append(one)
        self.last = (streams, one)

    def resume(self, hosts: int, workers: int, step: int, new_hosts: int, new_workers: int) -> None:
        """Stops the pass just read after `step` batches, and reads the rest as `new_hosts`."""
        if self.last is None:
            return
        streams, whole = self.last
        came_from = (hosts, workers, step)
        before = [stream.first(stream.rows_of(step)) for stream in streams]
        shortest = min(len(stream.sizes) for stream in streams)
        if shortest <= step:
            text = f"resume_at={step} is past the end: with {whole.name} a pass has {shortest} batches a host"
            if whole.ok:
                raise AuditError(f"{text}; choose a smaller one, or more records")
            self.notes.append(text)
            return
        left = self.expected.rows - sum(len(stream.keys) for stream in before)
        most = self._most(left, new_hosts)
        past = left + BEYOND
        by_state = not self.reader.factory.takes_step
        if by_state and not all(stream.states for stream in streams):
            raise AuditError("no resume: the iterator has no get_state, and the factory takes no start_step")
        try:
            after: list[Stream] = []
            for index in range(new_hosts):
                states = streams[index if new_hosts == hosts else self.state_host].states
                state, start = (states[step], 0) if by_state else (None, step)
                read = self.reader.read(
                    Host(index, new_hosts, new_workers), past if most is None else most, state, start_step=start
                )
                after.append(self._cut(read, most, new_workers))
        except LoaderError as error:
            self._failed(new_hosts, new_workers, error, REFUSED if by_state else FAILED, came_from)
            return
        resume = Resume(hosts, workers, step, streams, whole.order or KEPT * (hosts == 1), before, after, new_workers)
        both = joined(resume)
        found = tally(self.expected, both)
        cause = why_resumed(self.expected, resume, found)
        if cause is not None and not self.fixed:
            cause = because(NOT_FIXED, "So no resume can go on where it was.")
        causes = ([] if cause is None else [cause]) + [one for one in whole.causes if not one.note]
        dropped = legally_dropped_after(self.expected, resume, found)
        if not causes and not found.twice:
            dropped = max(dropped, min(found.never, whole.dropped))
        self.passes.append(self._pass(new_hosts, new_workers, found, after, causes, dropped, "", came_from))

    def _pass(
        self,
        hosts: int,
        workers: int,
        found: Tally,
        streams: Sequence[Stream],
        causes: Sequence[Cause],
        dropped: int,
        kind: str,
        came_from: tuple[int, int, int] | None = None,
    ) -> Pass:
        partial = self.expected.partial
        if not self.expected.ended:  # what was not read on purpose: the rest of a split, of a round of workers
            dropped = min(found.never, max(0, self.expected.rows - found.read))
        ok = all(cause.note for cause in causes)
        return Pass(
            hosts=hosts,
            workers=workers,
            expected=self.expected.rows,
            read=found.read,
            distinct=found.distinct,
            never=0 if partial else found.never,
            dropped=0 if partial else dropped,
            twice=found.twice,
            across=found.across,
            order=kind,
            batch=int(np.max([stream.batch for stream in streams], initial=0)),
            resumed_from=came_from,
            causes=tuple(causes),
            rows=() if ok else found.examples,
        )

    def _failed(
        self,
        hosts: int,
        workers: int,
        error: LoaderError,
        cause: Cause = FAILED,
        came_from: tuple[int, int, int] | None = None,
    ) -> None:
        rows = self._expected.rows if self._expected is not None else self.records or 0
        self.passes.append(Pass(hosts, workers, rows, resumed_from=came_from, causes=(because(cause, f"{error}"),)))


def _fault(cause: Cause) -> Cause:
    return Cause(cause.name, cause.because, cause.remedy)


def _whole(name: str, values: Sequence[Any], least: int) -> tuple[int, ...]:
    """Raises AuditError for anything but whole numbers from `least` on."""
    found = tuple(values)
    for value in found:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise AuditError(f"{name} must be whole numbers ≥ {least}, not {value!r}")
    if not found:
        raise AuditError(f"{name} is empty")
    return found
