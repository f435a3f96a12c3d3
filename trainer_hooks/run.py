"""`start` and `Run`: what a training loop calls. Nothing here blocks, or raises unless `strict` asks for it."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import uuid
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_hooks import launch as launches
from trainer_hooks import segment as segments
from trainer_hooks.batches import Names, checked_sets
from trainer_hooks.entries import Event, Items, as_tokens, packed
from trainer_hooks.fingerprints import snapshot
from trainer_hooks.jsonable import jsonable
from trainer_hooks.loaders import ReadsRows
from trainer_hooks.pipeline import FinishReport, Pipeline, choose_places, service_address
from trainer_hooks.row_buffers import RowBuffers
from trainer_hooks.tally import LOG, Tally, text_of
from trainer_hooks.values import NotReadyError, as_float, as_step, detached, is_device_array

QUEUE_ENTRIES = 100_000  # `log` calls that may wait for the writing thread; about 200 MB of 20 floats each
QUEUE_DEVICE_ENTRIES = 10_000  # …if they hold device arrays, whose memory is dearer
QUEUE_ROW_BYTES = 256 * 2**20
LEAST_ROW_BYTES = 4096  # that a `log_rows` call counts for, so that many tiny ones are bounded too
EVENT_KINDS = ("checkpoint", "config", "code", "data", "evaluator", "hardware", "note")
EVENT_BYTES = 2**20
EXIT_SECONDS = 5.0  # a process that ends without `finish` is held up at most so long
LONGEST_FINISH = 10.0**6  # seconds; far above it the interpreter refuses to wait
MAX_HOST = 2**31 - 1
_now = time.time
_live: set[Run] = set()


class Run(ReadsRows):
    """One start of a trainer inside a run. Made by `trainer_hooks.start`; also a context manager.

    Scalars, items and events are taken on process 0 and ignored on the others, where the same loop makes the same
    calls; row fingerprints are taken on every process.
    """

    def __init__(self, pipeline: Pipeline | None, tally: Tally, strict: bool, start_step: int = 0) -> None:
        self._pipeline = pipeline
        self._start_step = start_step
        self._tally = tally
        self._strict = strict
        self._names = Names()  # for `strict`, which checks on the calling thread
        self._report: FinishReport | None = None
        # A queue that keeps nothing stands in wherever there is nothing to do: no branch in `log`.
        self._entries: deque[Any] = deque(maxlen=0)
        self._rows: deque[Any] = deque(maxlen=0)
        self._buffers = RowBuffers()
        self._process = 0
        if pipeline is not None:
            self._process = pipeline.place.process
            self._rows = pipeline.writer.rows
            self._buffers = pipeline.writer.buffers
            if self._process == 0:
                self._entries = pipeline.writer.entries
            _live.add(self)

    @property
    def segment_id(self) -> str:
        """The id of this start; empty if the run is disabled."""
        return self._pipeline.journal.spool.segment if self._pipeline is not None else ""

    def log(
        self,
        step: Any,
        metrics: Mapping[str, Any],
        tokens: Any = None,
        weights_segment: str | None = None,
        eval_sets: Mapping[str, str] | None = None,
    ) -> None:
        """Records scalars at `step` (updates made so far).

        Values are Python or NumPy numbers, one-element arrays, or jax arrays, which are only referred to here and read
        in the background once the device has computed them. `tokens`: tokens consumed by updates 1…step, if they do
        not follow from `tokens_per_step`. `weights_segment`: for an evaluator, the segment that made the weights.
        `eval_sets`: for a metric measured on an evaluation set, the id of that set's content.
        """
        try:
            values = dict(metrics)
            room = QUEUE_ENTRIES
            for value in values.values():
                if type(value) is not float:
                    values, devices = detached(values)
                    room = QUEUE_DEVICE_ENTRIES if devices else QUEUE_ENTRIES
                    break
            if self._strict or weights_segment is not None or eval_sets is not None:
                eval_sets = self._check_log(step, values, tokens, weights_segment, eval_sets)
            queue = self._entries
            if len(queue) >= room:
                self._drop_oldest(queue, "queue full", "calls come faster than they are written; the oldest are lost")
            queue.append((step, values, tokens, weights_segment, eval_sets, _now()))
        except Exception as error:
            self.refuse("log", error)

    def log_rows(self, step: Any, rows: Any, host: int | None = None) -> None:
        """Records fingerprints of the rows fed at `step`: int array (batch, length).

        Give what this process fed, as its NumPy batch; with one controller for several loaders, call it once for each
        and name it by `host` (by default the index of this process). Rows are copied here, hashed in the background.
        """
        try:
            if host is None:
                host = self._process
            elif isinstance(host, bool) or int(host) != host or not 0 <= host <= MAX_HOST:
                raise ValueError(f"host must be a whole number from 0 to 2**31 - 1, not {host!r:.60}")
            else:
                host = int(host)
            if self._strict:
                self._check_step(step)
            copy = self._buffers.copy(rows)
            if copy is None:
                copy = self._copied(rows)
            queue = self._rows
            if len(queue) * max(copy.nbytes, LEAST_ROW_BYTES) > QUEUE_ROW_BYTES:
                self._drop_oldest(queue, "rows queue full", "rows come faster than they are hashed; some are left out")
            queue.append((step, copy, host))
        except Exception as error:
            self.refuse("log_rows", error)

    def log_items(self, step: Any, task: str, correct: Any) -> None:
        """Records per-item results of one task: bool (items,), in the task's own order."""
        try:
            if not task or len(task.encode()) > segments.NAME_BYTES or "\0" in task:
                raise ValueError(f"task must be a name of at most 256 bytes without NUL, not {task!r:.60}")
            if not is_device_array(correct) or len(correct.shape) != 1:
                correct = packed(correct)
            if self._strict:
                self._check_step(step)
            self._enqueue(Items(step, task, correct))
        except Exception as error:
            self.refuse("log_items", error)

    def event(self, step: Any, kind: str, value: Any = None) -> None:
        """Records that something happened at `step`: checkpoint, config, code, data, evaluator, hardware or note."""
        try:
            if kind not in EVENT_KINDS:
                raise ValueError(f"kind must be one of {', '.join(EVENT_KINDS)}, not {kind!r}")
            if self._strict:
                self._check_step(step)
            self._enqueue(Event(step, kind, jsonable(value, EVENT_BYTES), _now()))
        except Exception as error:
            self.refuse("event", error)

    def finish(self, timeout: float = 30.0) -> FinishReport:
        """Ends the segment; sends what is left for at most `timeout` seconds. What remains is in the spool."""
        try:
            seconds = min(max(float(timeout), 0.0), LONGEST_FINISH)
        except Exception as error:
            self.refuse("finish", error)
            seconds = 30.0
        return self._end(seconds, finished=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Finishes, or after an exception only delivers: a run that failed has not finished."""
        self._end(30.0 if kind is None else EXIT_SECONDS, finished=kind is None)

    def _end(self, timeout: float, finished: bool) -> FinishReport:
        if self._report is not None:
            return self._report
        pipeline = self._pipeline
        if pipeline is None:
            self._report = FinishReport(0, 0, counts=self._tally.snapshot())
            return self._report
        self._entries = self._rows = _Late(self._tally, self._strict)
        try:
            pipeline.end(timeout, finished)
        except Exception as error:
            self.refuse("finish", error)
        _live.discard(self)
        self._report = report = pipeline.report()
        pipeline.say_what_is_left(report)
        return report

    def _check_log(
        self, step: Any, values: dict[Any, Any], tokens: Any, weights_segment: Any, eval_sets: Any
    ) -> dict[str, str] | None:
        """Raises ValueError for what the service would refuse a whole batch for; a private copy of `eval_sets`."""
        eval_sets = None if eval_sets is None else checked_sets(eval_sets)
        if weights_segment is not None:
            try:  # the service would refuse the whole batch
                uuid.UUID(weights_segment)
            except (ValueError, AttributeError, TypeError):
                raise ValueError(f"weights_segment must be a segment's id, not {weights_segment!r:.60}") from None
        if not self._strict:
            return eval_sets
        self._check_step(step)
        for name, value in values.items():
            fault = self._names.fault(name)
            if fault:
                raise ValueError(fault)
            try:
                if value is not None:
                    as_float(value)
            except NotReadyError:
                pass  # waiting for the device is not for this thread, not even here
        as_tokens(tokens)
        return eval_sets

    def _copied(self, rows: Any) -> NDArray[np.uint32]:
        """A copy of rows that are to be checked first."""
        if is_device_array(rows):
            raise TypeError("log_rows needs the batch as a NumPy array, before it is put on devices")
        copy = snapshot(rows, QUEUE_ROW_BYTES)
        self._buffers.expect(rows)
        return copy

    def _check_step(self, step: Any) -> None:
        with contextlib.suppress(NotReadyError):
            as_step(step)

    def _enqueue(self, entry: Items | Event) -> None:
        queue = self._entries
        if len(queue) >= QUEUE_DEVICE_ENTRIES:
            self._drop_oldest(queue, "queue full", "calls come faster than they are written; the oldest are lost")
        queue.append(entry)

    def _drop_oldest(self, queue: deque[Any], reason: str, message: str) -> None:
        try:
            queue.popleft()
        except IndexError:
            return
        self._tally.add(reason, message)

    def refuse(self, call: str, error: Exception) -> None:
        """Counts a call that cannot succeed and says so once; raises if `strict`."""
        if self._strict:
            raise error
        with contextlib.suppress(Exception):  # of a log handler
            self._tally.add(f"refused {call}", f"a call of {call} was left out: {text_of(error)}")

    def __reduce__(self) -> tuple[Any, ...]:
        """A data loader may send its reader, and the run with it, to a worker process: there it does nothing."""
        return _run_elsewhere, ()

    def __copy__(self) -> Run:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Run:
        return self

    def _leave_in_child(self) -> None:
        """A forked child has neither the threads nor the right to send its parent's data."""
        if self._pipeline is not None:
            self._pipeline.journal.close_in_child()
        self._pipeline = None
        self._tally = Tally()  # the old one may be locked by a thread that does not exist here
        self._entries = deque(maxlen=0)
        self._rows = deque(maxlen=0)
        self._report = FinishReport(0, 0)


class _Late(deque[Any]):
    """Stands in for a queue after the end of a run: counts what comes too late."""

    def __init__(self, tally: Tally, strict: bool) -> None:
        super().__init__()
        self._tally = tally
        self._strict = strict

    def append(self, x: Any, /) -> None:
        if self._strict:
            raise RuntimeError("the run is finished")
        self._tally.add("after finish", "a call came after finish and was left out")


@atexit.register
def _end_at_exit() -> None:  # pyright: ignore[reportUnusedFunction]
    deadline = time.monotonic() + EXIT_SECONDS
    for run in list(_live):
        left = max(0.0, deadline - time.monotonic())
        run._end(left, finished=False)  # pyright: ignore[reportPrivateUsage]


def _run_elsewhere() -> Run:
    """What a run is after it was pickled."""
    return Run(None, Tally(), strict=False)


def _leave_runs_in_child() -> None:
    for run in list(_live):
        run._leave_in_child()  # pyright: ignore[reportPrivateUsage]
    _live.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_runs_in_child)


def start(
    name: str,
    *,
    project: str | None = None,
    reference: str | None = None,
    stage: str = "stage1",
    tokens_per_step: Any = None,
    start_step: Any = 0,
    start_tokens: Any = None,
    kind: str = "trainer",
    forked_from: tuple[str, int] | None = None,
    config: Any = None,
    data: Mapping[str, Any] | None = None,
    sample_rows: Any = 1024,
    heldout: Mapping[str, Any] | None = None,
    names: Any = None,
    mesh: Any = None,
    batch_shape: Any = None,
    spool: str | os.PathLike[str] | None = None,
    strict: bool = False,
) -> Run:
    """Opens a segment: call it once per process start, on every process, after `jax.distributed.initialize`.

    `tokens_per_step` is a number or, for ramps, a list of (from_step, tokens_per_step); `start_step` the updates
    already made; `forked_from` (run, step); `data` {"rows": rows in the data set, "epochs": passes over it}; one in
    `sample_rows` row hashes is sent; `heldout` set -> token arrays, as for `watch_heldout`; `config` anything; `mesh` a
    jax mesh or axis -> devices, `batch_shape` that of the global batch, for the record. `names` is the name map of a
    trainer (docs/adapters.md), if metrics are logged under its own names. `spool`: the folder of the spool, or an
    fsspec address that gets a copy of it, to which the first part is waited for, 5 s at most (docs/remote-spool.md);
    PACENOTE_SPOOL_DIR by default. Several jax processes agree on the segment through the key-value store of
    `jax.distributed`: process 0 never waits there, the others at most half a minute. Never raises: a bad argument gives
    a run that does nothing, and one warning; `strict` raises.
    """
    tally = Tally()
    place = segments.Place(0, 1)
    body: dict[str, Any] | None = None
    fault: Exception | None = None
    mode = os.environ.get("PACENOTE_MODE") or "online"
    translate = None
    try:
        place = segments.find_place()
        if names is not None:
            from trainer_hooks.names import Translator, load

            translate = Translator(load(names))
        if mode not in ("online", "offline", "disabled"):
            raise ValueError(f"PACENOTE_MODE must be online, offline or disabled, not {mode!r}")
        body = segments.describe(
            name,
            project=project,
            reference=reference,
            stage=stage,
            kind=kind,
            start_step=start_step,
            start_tokens=start_tokens,
            tokens_per_step=tokens_per_step,
            forked_from=forked_from,
            config=config,
            data=data,
            sample_rows=sample_rows,
            place=place,
            mesh=mesh,
            batch_shape=batch_shape,
            names=None if translate is None else translate.names.declared(),
        )
    except Exception as error:
        fault = error
    try:
        places = choose_places(spool)
        names = (project or os.environ.get("PACENOTE_PROJECT"), name, stage, kind)
        # Whatever went wrong here, the other processes may be waiting for this one's word.
        launch = launches.launch(place, names, body, mode != "disabled", places.local)
        if mode == "disabled":
            return Run(None, tally, strict=False)
        if fault is not None:
            raise fault
        if not launch.body or body is None:
            raise ValueError("process 0 could not describe the run")
        url = service_address(mode, strict)
        pipeline = Pipeline(place, launch, body["sample_rows"], tally, url, places, translate)
        run = Run(pipeline, tally, strict, body["start_step"])
        for key, batches in (heldout or {}).items():
            run.watch_heldout(key, batches)
        return run
    except Exception as error:
        if mode == "disabled":
            return Run(None, tally, strict=False)
        error = fault or error
        if strict:
            raise error
        LOG.warning("pacenote: this run is not recorded: %s", text_of(error))
        return Run(None, tally, strict=False)
