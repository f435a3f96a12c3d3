"""What must never happen to a training run: a wait, a signal handler, memory held, a process hung or ended."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import types
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hook_service import HookService
from test_hook_values import DeviceArray

import trainer_hooks
from trainer_hooks import run as runs
from trainer_hooks import writer
from trainer_hooks.fingerprints import Fingerprints
from trainer_hooks.stores import Appender
from trainer_hooks.tally import Tally


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writing thread that gets no time."""
    monkeypatch.setattr(writer.Writer, "turn", lambda self, hurry=False, last_chance=False: None)


def entries(run: trainer_hooks.Run) -> list[Any]:
    assert run._pipeline is not None
    return list(run._pipeline.writer.entries)


# --- import ---


def test_an_import_brings_neither_jax_nor_what_a_run_without_a_service_needs_not() -> None:
    code = (
        "import sys, numpy; before = set(sys.modules); import trainer_hooks; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    brought = set(done.stdout.split())
    assert "trainer_hooks" in brought
    assert not brought & {"jax", "ssl", "http", "email", "asyncio", "fsspec", "concurrent", "tomllib", "grain"}


# --- the least the writing thread does ---


@pytest.mark.parametrize(
    ("waiting", "since_turn", "pause"), [(3, 0.0, 0.5), (3, 0.4, 0.1), (3, 9.0, 0.05), (101, 0.0, 0.05)]
)
def test_the_writing_thread_looks_often_only_where_calls_come_fast(
    monkeypatch: pytest.MonkeyPatch, waiting: int, since_turn: float, pause: float
) -> None:
    monkeypatch.undo()  # the real waits
    monkeypatch.setattr(writer.time, "monotonic", lambda: 100.0 + since_turn)
    double: Any = types.SimpleNamespace(entries=range(waiting))
    thread = writer.WritingThread(double, double, double)
    assert thread._pause(100.0) == pytest.approx(pause)


def test_turns_begin_at_a_fixed_distance_however_long_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from the end of the turn before, a call that came early in a long turn would be lost by a kill."""
    monkeypatch.undo()
    now, begun = 100.0, list[float]()

    class Closing:
        def wait(self, pause: float) -> bool:
            nonlocal now
            now += pause
            return len(begun) == 4

    def turn(*_: Any) -> None:
        nonlocal now
        begun.append(now)
        now += 0.3

    double: Any = types.SimpleNamespace(
        entries=(), turn=turn, waiting=lambda: 0, flush=lambda *_: None, close=lambda: None
    )
    monkeypatch.setattr(writer.time, "monotonic", lambda: now)
    thread: Any = writer.WritingThread(double, double, double)
    thread._closing = Closing()
    thread.run()
    assert np.diff(begun[:4]) == pytest.approx(writer.RECORD_SECONDS)


def test_scalars_are_on_their_way_to_the_disk_before_rows_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    journal: Any = types.SimpleNamespace(
        append=lambda kind, body: done.append(kind), flush=lambda: done.append("flush")
    )
    taking = writer.Writer(journal, 0, 1, Tally())
    monkeypatch.setattr(Fingerprints, "add", lambda *_: done.append("hash"))
    entry = (1, {"loss": 1.0}, None, None, None, 0.0)
    taking.entries.append(entry)
    taking.rows.append((1, np.zeros((2, 64), np.uint32), 0))
    taking.turn()
    assert done == ["batches", "flush", "hash", "flush"]
    done.clear()
    taking.entries.append(entry)
    taking.turn()
    assert done == ["batches", "flush"]


# --- memory ---


def test_an_array_that_is_no_scalar_is_not_held(service: HookService, stuck: None) -> None:
    run = trainer_hooks.start("run", project="p")
    on_device, on_host = jnp.ones((4, 4)), np.ones((4, 4))
    references = [weakref.ref(on_device), weakref.ref(on_host)]
    run.log(1, {"device": on_device, "host": on_host})
    run.log_items(1, "task", on_device)
    del on_device, on_host
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert len(entries(run)) == 1
    run.finish(timeout=0.1)


def test_a_device_array_is_let_go_once_it_is_written(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    loss = jnp.float32(1.5) + 1
    reference = weakref.ref(loss)
    run.log(1, {"loss": loss})
    del loss
    service.wait_for(lambda s: s.points())
    gc.collect()
    assert reference() is None
    run.finish()


def test_a_device_far_behind_holds_a_bounded_number_of_arrays(
    service: HookService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "QUEUE_DEVICE_ENTRIES", 50)
    run = trainer_hooks.start("run", project="p")
    for step in range(200):
        run.log(step, {"loss": DeviceArray(ready=False)})
    assert len(entries(run)) <= 50
    run.log(200, {"plain": 1.0})
    report = run.finish(timeout=0.3)
    assert report.counts["queue full"] + report.counts["not ready"] == 200
    assert service.points() == [(200, "plain", 1.0)]


def test_what_is_ready_behind_a_stuck_device_is_written_at_the_end(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": DeviceArray(ready=False), "rate": 0.5})
    run.log(DeviceArray(ready=False), {"loss": 1.0})
    run.log(3, {"heldout": 3.0})
    run.log_rows(DeviceArray(ready=False), np.ones((1, 1), int))
    assert run.finish(timeout=0.3).counts == {"not ready": 3}
    assert service.points() == [(1, "rate", 0.5), (3, "heldout", 3.0)]


def test_rows_and_items_and_events_have_bounded_queues(
    service: HookService, stuck: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "QUEUE_DEVICE_ENTRIES", 10)
    monkeypatch.setattr(runs, "QUEUE_ROW_BYTES", 10 * runs.LEAST_ROW_BYTES)
    run = trainer_hooks.start("run", project="p")
    for step in range(30):
        run.log_rows(step, np.zeros((0, 8), int))
        run.event(step, "note")
        run.log_items(step, "task", [True])
    run.log_rows(30, np.zeros((10, 100_000), np.int8))
    assert run._pipeline is not None
    assert len(run._pipeline.writer.rows) == 11
    assert len(entries(run)) == 10
    assert run.finish(timeout=0.1).counts["refused log_rows"] == 1


def test_neither_descriptors_nor_threads_are_left_behind(service: HookService) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    trainer_hooks.start("run", project="p").finish()
    before, threads = descriptors(), threading.active_count()
    for _ in range(5):
        run = trainer_hooks.start("run", project="p")
        for step in range(2_000):
            run.log(step, {"loss": 1.0})
        run.finish()
        del run
    assert descriptors() <= before + 1  # the service may still hold the last connection
    for thread in threading.enumerate():
        if thread.name.startswith("pacenote"):
            thread.join(10)
    assert threading.active_count() <= threads + 1


# --- time ---


def test_a_slow_disk_holds_up_neither_the_loop_nor_what_is_sent(
    service: HookService, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing, release = threading.Event(), threading.Event()

    def slow(appender: Appender) -> None:
        syncing.set()
        release.wait(20)

    monkeypatch.setattr(Appender, "sync", slow)
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": 1.0})
    report = run.finish(timeout=1.0)  # the disk still has not answered
    assert syncing.is_set()
    assert not release.is_set()
    assert (report.sent, report.left_in_spool) == (3, 0)
    release.set()


@pytest.mark.parametrize("method", ["__float__", "__array__"])
def test_a_value_that_never_converts_stops_only_the_writing(service: HookService, method: str) -> None:
    release = threading.Event()

    class Blocking:
        size = 1

        def __float__(self) -> float:
            release.wait(20)
            return 1.0

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            release.wait(20)
            return np.ones(())

    blocking: Any = Blocking()
    if method == "__array__":
        blocking = type("Device", (DeviceArray,), {"__array__": Blocking.__array__})()
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": blocking})
    for step in range(2, 100):
        run.log(step, {"loss": 1.0})
    report = run.finish(timeout=0.3)
    assert not release.is_set()
    assert report.counts["not written"] >= 98
    release.set()


class Unusable:
    def __float__(self) -> float:
        raise RuntimeError("Array has been deleted")


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), -1, None, "soon", 10**400, Unusable()])
def test_any_timeout_finishes(service: HookService, timeout: Any) -> None:
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": 1.0})
    report = run.finish(timeout=timeout)
    assert report.sent + report.left_in_spool + report.counts.get("not written", 0) >= 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError])
def test_whatever_a_value_raises_in_the_background_costs_itself_only(
    service: HookService, error: type[BaseException]
) -> None:
    class Raising:
        def __float__(self) -> float:
            raise error

    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": Raising()})
    run.log(2, {"loss": 2.0})
    report = run.finish()
    assert service.points()[-1] == (2, "loss", 2.0)
    assert sum(report.counts.values()) == 1


def test_threads_may_log_while_the_run_finishes(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    ready = threading.Barrier(5)

    def work(thread: int) -> None:
        ready.wait()
        for step in range(3_000):
            run.log(step, {f"thread/{thread}": 1.0})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    ready.wait()
    report = run.finish()
    for thread in threads:
        thread.join()
    late = run._tally.counts["after finish"] + report.counts.get("not written", 0)
    assert len(service.points()) + late == 12_000


# --- what is logged ---

KINDS = [
    (jnp.bfloat16(1.5), 1.5),
    (jnp.array(1.75, jnp.float8_e4m3fn), 1.75),
    (jnp.array(-3, jnp.int4), -3.0),
    (jnp.array(True), 1.0),
    (np.uint64(2**40), float(2**40)),
    (jnp.array(1j), None),
    (jax.random.key(0), None),
    (np.datetime64("2026-01-01"), None),
    ("1.0", None),
    ({"nested": 1.0}, None),
    ([1.0], None),
    (np.array([object()]), None),
]


def test_every_kind_of_value_is_a_number_or_counted(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    run.log(1, {f"kind/{i}": jax.block_until_ready(value) for i, (value, _) in enumerate(KINDS)})
    report = run.finish()
    expected = [(1, f"kind/{i}", number) for i, (_, number) in enumerate(KINDS) if number is not None]
    assert sorted(service.points()) == sorted(expected)
    assert sum(report.counts.values()) == len(KINDS) - len(expected)


@pytest.mark.parametrize("name", ["a\0b", "axis/time", "axis/tokens", "\udfff", "é" * 129, "", None])
def test_a_name_the_service_would_refuse_costs_itself_only(service: HookService, name: Any) -> None:
    run = trainer_hooks.start("run", project="p")
    run.log(1, {name: 1.0, "loss": 2.0})
    assert run.finish().counts == {"refused": 1}
    assert service.points() == [(1, "loss", 2.0)]


def test_rows_of_any_integers(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p", sample_rows=1)
    for step, rows in enumerate(
        [
            np.array([[-1, 2]], np.int64),
            np.array([[2**32 - 1, 2]], np.uint64),
            np.array([[2**33 - 1, 2**32 + 2]]),
            [[-1, 2]],
            np.array([[2**32 - 1, 2]], ">u4"),
        ]
    ):
        run.log_rows(step, rows)
    for bad in ([[1, 2], [3]], np.ones((1, 2), bool), np.array([["a"]]), [[2**70]], None):
        run.log_rows(9, bad)
    run.log_rows(10, np.ones((0, 5), int))
    report = run.finish()
    hashes = [text for body in service.bodies("fingerprints") for text in body["hashes"]]
    assert len(hashes) == 5
    assert len(set(hashes)) == 1
    assert report.counts == {"refused log_rows": 5}
