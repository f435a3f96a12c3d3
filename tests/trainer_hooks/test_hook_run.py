"""What a training loop sees of the hook, and what of it reaches the service."""

from __future__ import annotations

import base64
import dataclasses
import json
import threading
import time
import uuid
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
from trainer_hooks.batches import BatchBuilder
from trainer_hooks.journal import Journal
from trainer_hooks.spool import Cursor, Position, part_ends
from trainer_hooks.stores import LocalStore


def spooled(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """(kind, body) of every record in a folder that holds one spool."""
    store = LocalStore(folder)
    (spool, ends), *others = part_ends(store).items()
    assert not others
    cursor = Cursor(store, spool, Position(), ends)
    found: list[tuple[str, dict[str, Any]]] = []
    while (record := cursor.peek()) is not None:
        found.append((record.kind, json.loads(record.body)))
        cursor.acknowledge(record.number)
    return found


@dataclasses.dataclass
class Config:
    width: int = 8


def test_everything_a_run_says_arrives(service: HookService) -> None:
    run = trainer_hooks.start(
        "run",
        project="olmo3-7b",
        reference="olmo3-7b",
        stage="stage2",
        tokens_per_step=[(0, 1024), (500, 2048)],
        start_step=np.int32(100),
        start_tokens=102400,
        kind="evaluator",
        forked_from=("parent", 90),
        config=Config(),
        data={"rows": 1000, "epochs": 2},
        sample_rows=2,
        strict=True,
    )
    rows = np.arange(40).reshape(10, 4)
    correct = np.array([True, False, True, True, False, False, False, False, True])
    run.log(101, {"loss": 2.5, "rate": None}, tokens=104000, weights_segment="6f9619ff-8b86-4d01-b42d-00c04fc964ff")
    run.log(102, {"loss": 2.25})
    run.log_rows(101, rows)
    run.log_rows(101, rows, host=3)
    run.log_items(102, "arc_easy", correct)
    run.event(102, "checkpoint", Path("/checkpoints/102"))
    report = run.finish()

    assert (report.sent, report.left_in_spool, report.rejected, report.dropped) == (8, 0, 0, 0)
    segment = service.segments[run.segment_id]
    assert uuid.UUID(run.segment_id).version == 4
    started_at, versions = segment.pop("started_at"), segment.pop("versions")
    assert abs(started_at - time.time()) < 60
    assert versions["trainer_hooks"] == trainer_hooks.__version__
    assert versions["jax"] == jax.__version__
    topology = segment.pop("topology")
    assert (topology["hosts"], topology["processes"], topology["devices"]) == (1, 1, jax.device_count())
    assert topology["device_kind"] == jax.devices()[0].device_kind
    assert segment == {
        "process": 0,
        "seq": 0,
        "project": "olmo3-7b",
        "run": "run",
        "role": "reproduction",
        "reference": "olmo3-7b",
        "stage": "stage2",
        "kind": "evaluator",
        "start_step": 100,
        "start_tokens": 102400,
        "tokens_per_step": None,
        "ramp": [[0, 1024], [500, 2048]],
        "forked_from": {"run": "parent", "step": 90},
        "config": {"width": 8},
        "data": {"rows": 1000, "epochs": 2.0},
        "sample_rows": 2,
    }
    first, second = service.bodies("batches")  # two, because the weights are of different segments
    assert (first["steps"], first["tokens"], first["metrics"]) == ([101], [104000], {"loss": [2.5]})
    assert first["weights_segment"] == "6f9619ff-8b86-4d01-b42d-00c04fc964ff"
    assert (second["steps"], second["metrics"]) == ([102], {"loss": [2.25]})
    assert "tokens" not in second
    assert [body["seq"] for body in (first, second)] == [0, 1]
    assert sorted(body["host"] for body in service.bodies("fingerprints")) == [0, 3]
    for body in service.bodies("fingerprints"):
        assert body["seen"] == [[101, 101, 10]]
        assert all(int(text, 16) % 2 == 0 for text in body["hashes"])
    (items,) = service.bodies("items")
    assert (items["step"], items["task"], items["n"], items["correct"]) == (102, "arc_easy", 9, "DQE=")
    bits = np.unpackbits(np.frombuffer(base64.b64decode(items["correct"]), np.uint8), bitorder="little")[:9]
    assert bits.astype(bool).tolist() == correct.tolist()
    (event,) = service.bodies("events")
    assert (event["step"], event["kind"], event["value"]) == (102, "checkpoint", "/checkpoints/102")
    assert [kind for kind, _ in service.taken][-1] == "finish"


def test_values_are_those_of_the_call_not_of_later(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    metrics: dict[str, Any] = {"array": np.array(1.0), "number": 1.0}
    rows, correct = np.ones((1, 4), int), np.array([True])
    run.log(1, metrics)
    run.log_rows(1, rows)
    run.log_items(1, "task", correct)
    metrics["array"][...] = 2.0
    metrics["number"] = 2.0
    rows[:] = 2
    correct[:] = False
    run.finish()
    assert service.points() == [(1, "array", 1.0), (1, "number", 1.0)]
    assert service.bodies("items")[0]["correct"] == "AQ=="


def test_device_arrays_are_read_in_the_background_in_order(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    late = DeviceArray(ready=False)
    donated = jnp.ones(())
    update = jax.jit(lambda x: x * 2, donate_argnums=0)
    run.log(jnp.int32(1), {"loss": jnp.float32(1.5), "half": jnp.bfloat16(0.5)}, tokens=jnp.int32(1024))
    run.log(2, {"loss": late, "other": 1.0})
    run.log(3, {"donated": donated, "loss": jnp.float32(3.5)})
    run.log(4, {"spread": DeviceArray(replicated=False), "vector": jnp.ones(3), "loss": 4.5})
    run.log_items(4, "task", jnp.array([True, False]))
    update(donated).block_until_ready()
    service.wait_for(lambda s: len(s.points()) == 2)
    assert service.points() == [(1, "loss", 1.5), (1, "half", 0.5)]
    assert service.bodies("batches")[0]["tokens"] == [1024]
    late.ready = True
    report = run.finish()
    assert service.points()[2:] == [(2, "loss", 2.5), (2, "other", 1.0), (3, "loss", 3.5), (4, "loss", 4.5)]
    assert service.bodies("items")[0]["correct"] == "AQ=="
    assert dict(report.counts) == {"deleted": 1, "not replicated": 1, "refused": 1}
    note = service.bodies("events")[0]["value"]
    assert note == {"trainer_hooks": {"dropped": {"deleted": 1, "not replicated": 1, "refused": 1}}}


def test_a_device_that_never_answers_holds_finish_up_no_longer_than_asked(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": 1.0})
    run.log(2, {"loss": DeviceArray(ready=False)})
    started = time.monotonic()
    report = run.finish(timeout=0.5)
    assert time.monotonic() - started < 5.0
    assert service.points() == [(1, "loss", 1.0)]
    assert report.counts["not ready"] == 1


BAD_CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("log", (1, {"loss": "2.5"})),
    ("log", (-1, {"loss": 2.5})),
    ("log", (1.5, {"loss": 2.5})),
    ("log", (1, 2.5)),
    ("log", (1, {"": 2.5})),
    ("log", (1, {"n" * 257: 2.5})),
    ("log", (1, {"\ud800": 2.5})),
    ("log", (1, {3: 2.5})),
    ("log", (1, {"loss": 2.5}, None, 7)),
    ("log", (1, {"loss": 2.5}, -1)),
    ("log_rows", (1, np.zeros(3, int))),
    ("log_rows", (1, np.zeros((2, 3)))),
    ("log_rows", (1, np.zeros((2, 3), int), -1)),
    ("log_rows", (1, jnp.zeros((2, 3), int))),
    ("log_rows", ("one", np.zeros((2, 3), int))),
    ("log_items", (1, "task", [0.5, 1])),
    ("log_items", (1, "", [True])),
    ("log_items", (1, "task", [])),
    ("event", (1, "party", 1)),
    ("event", (None, "note", 1)),
]


@pytest.mark.parametrize(("call", "arguments"), BAD_CALLS)
def test_a_bad_call_costs_itself_only_or_raises_if_strict(
    service: HookService, caplog: pytest.LogCaptureFixture, call: str, arguments: tuple[Any, ...]
) -> None:
    run = trainer_hooks.start("run", project="p")
    for _ in range(3):
        getattr(run, call)(*arguments)
    run.log(5, {"good": 1.0})
    report = run.finish()
    assert sum(report.counts.values()) == 3
    assert report.rejected == report.left_in_spool == 0
    assert service.points()[-1:] == [(5, "good", 1.0)]
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1

    strict = trainer_hooks.start("run", project="p", strict=True)
    with pytest.raises((ValueError, TypeError)):
        getattr(strict, call)(*arguments)
    strict.finish()
    with pytest.raises(RuntimeError, match="finished"):
        strict.log(6, {"late": 1.0})


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": 3},
        {"project": None},
        {"start_step": -1},
        {"tokens_per_step": 0},
        {"tokens_per_step": [(5, 1), (0, 1)]},
        {"kind": "robot"},
        {"sample_rows": 0},
        {"data": {"rows": 0}},
        {"data": {"shards": 4, "rows": 5}},
        {"forked_from": "parent"},
    ],
)
def test_a_bad_start_gives_a_run_that_does_nothing(
    service: HookService, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    arguments = {"name": "run", "project": "p", **options}
    name = arguments.pop("name")
    run = trainer_hooks.start(name, **arguments)
    run.log(1, {"loss": 1.0})
    run.log_rows(1, np.zeros((1, 1), int))
    assert run.finish() == trainer_hooks.FinishReport(0, 0)
    assert run.segment_id == ""
    assert caplog.text.count("this run is not recorded") == 1
    assert service.requests == []
    with pytest.raises((ValueError, TypeError)):
        trainer_hooks.start(name, **arguments, strict=True)


def test_modes(
    service: HookService, environment: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PACENOTE_PROJECT", "from the environment")
    monkeypatch.setenv("PACENOTE_MODE", "disabled")
    with trainer_hooks.start("run") as run:
        run.log(1, {"loss": 1.0})
    assert not environment.exists()
    assert caplog.text == ""
    monkeypatch.setenv("PACENOTE_MODE", "sometimes")
    assert trainer_hooks.start("run").segment_id == ""
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    with trainer_hooks.start("run") as run:
        run.log(1, {"loss": 1.0})
    assert run.finish().left_in_spool == 3
    assert [kind for kind, _ in spooled(environment)] == ["segment", "batches", "finish"]
    assert spooled(environment)[0][1]["project"] == "from the environment"
    assert service.requests == []


@pytest.mark.parametrize("url", ["", "localhost:8350", "http://", "http://host:port"])
def test_without_an_address_the_run_is_spooled_and_one_line_says_so(
    environment: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    monkeypatch.setenv("PACENOTE_URL", url)
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": 1.0})
    assert run.finish().left_in_spool == 3
    assert len(caplog.records) == 1
    assert len(spooled(environment)) == 3


def test_many_threads_may_log(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")

    def work(thread: int) -> None:
        for step in range(500):
            run.log(step, {f"thread/{thread}": float(step)})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run.finish().left_in_spool == 0
    for i in range(8):
        name = f"thread/{i}"
        assert [p for p in service.points() if p[1] == name] == [(s, name, float(s)) for s in range(500)]


def test_a_burst_larger_than_the_queue_drops_the_oldest_and_counts_them(
    service: HookService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "QUEUE_ENTRIES", 100)
    monkeypatch.setattr(writer.Writer, "turn", lambda self, hurry=False: None)  # the thread gets no time
    run = trainer_hooks.start("run", project="p")
    for step in range(250):
        run.log(step, {"loss": float(step)})
    assert run._pipeline is not None
    assert [entry[0] for entry in run._pipeline.writer.entries] == list(range(150, 250))  # type: ignore[index]
    monkeypatch.undo()
    assert run.finish(timeout=1.0).counts["queue full"] == 150


def test_large_bursts_are_cut_into_bodies_of_bounded_size(environment: Path) -> None:
    run = trainer_hooks.start("run", project="p", sample_rows=1)
    for step in range(3000):
        run.log(step, {f"metric/{i}": step + i / 7 for i in range(20)})
    run.log_rows(1, np.arange(120_000).reshape(-1, 1))
    run.finish()
    records = spooled(environment)
    assert max(len(json.dumps(body)) for _, body in records) < 2 * 2**20
    steps = [step for kind, body in records if kind == "batches" for step in body["steps"]]
    assert steps == list(range(3000))
    rows = [body for kind, body in records if kind == "fingerprints"]
    assert sum(len(body["hashes"]) for body in rows) == sum(body["seen"][0][2] for body in rows) == 120_000


def test_more_metrics_than_a_run_may_have_are_left_out(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    for step in range(21):
        run.log(step, {f"step_{step}/{i}": 1.0 for i in range(100)})
    assert run.finish().counts == {"refused": 100}
    assert len(service.points()) == 2000


@pytest.mark.parametrize("where", [BatchBuilder, Journal, writer.Writer])
def test_faults_in_the_writing_thread_reach_neither_the_loop_nor_each_other(
    service: HookService, monkeypatch: pytest.MonkeyPatch, where: type
) -> None:
    name = {BatchBuilder: "body", Journal: "flush", writer.Writer: "turn"}[where]
    faults = iter([RuntimeError("first"), MemoryError("second")])
    original = getattr(where, name)

    def faulty(*arguments: Any, **options: Any) -> Any:
        for fault in faults:
            raise fault
        return original(*arguments, **options)

    monkeypatch.setattr(where, name, faulty)
    run = trainer_hooks.start("run", project="p")
    for step in range(1, 4):
        run.log(step, {"loss": float(step)})
        time.sleep(0.05)
    report = run.finish()
    assert report.counts["faults"] == 2
    assert report.left_in_spool == 0
    assert service.points()[-1] == (3, "loss", 3.0)


def test_an_unusable_spool_still_delivers(
    service: HookService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PACENOTE_SPOOL_DIR", str(tmp_path / "file" / "below"))
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": 1.0})
    assert run.finish().left_in_spool == 0
    assert service.points() == [(1, "loss", 1.0)]
