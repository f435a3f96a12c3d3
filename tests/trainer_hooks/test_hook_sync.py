"""What a dead process left in its spool reaches the service once, however often it is sent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hook_service import HookService, Reply

import trainer_hooks
from trainer_hooks.spool import Cursor, Position, part_ends
from trainer_hooks.stores import LocalStore, open_store
from trainer_hooks.sync import main, sync

TRAINER = """
import sys, time, trainer_hooks, numpy as np
run = trainer_hooks.start("killed", project="p", sample_rows=1)
for step in range(1, 1_000_000):
    run.log(step, {"loss": 1.0 / step, "spike": float("nan")})
    if step % 50 == 0:
        run.log_rows(step, np.full((1, 4), step))
        run.event(step, "note", step)
        print(step, flush=True)
    time.sleep(0.0005)
"""


def offline_run(monkeypatch: pytest.MonkeyPatch, steps: int = 5, name: str = "run") -> trainer_hooks.Run:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    run = trainer_hooks.start(name, project="p")
    for step in range(1, steps + 1):
        run.log(step, {"loss": float(step)})
    run.event(steps, "note", "the end")
    run.finish()
    return run


def whole_records(folder: Path) -> int:
    store = LocalStore(folder)
    count = 0
    for spool, ends in part_ends(store).items():
        cursor = Cursor(store, spool, Position(), ends)
        while (record := cursor.peek()) is not None:
            cursor.acknowledge(record.number)
            count += 1
    return count


@pytest.mark.parametrize("online", [False, True])
def test_after_kill_9_every_whole_record_arrives_once(service: HookService, environment: Path, online: bool) -> None:
    variables = {**os.environ, "PACENOTE_MODE": "online" if online else "offline"}
    process = subprocess.Popen([sys.executable, "-c", TRAINER], env=variables, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if online:
        service.wait_for(lambda s: len(s.points()) >= 400)
    else:
        assert any(int(line) >= 1500 for line in process.stdout)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    whole = whole_records(environment)
    (part,) = environment.glob("*.spool")
    with part.open("ab") as file:  # what a kill in the middle of a write leaves
        file.write(part.read_bytes()[:30])
    report = sync(service.url)
    assert report.complete
    assert report.damaged == 1
    assert report.sent + report.already_sent == whole == len(service.taken)
    assert service.duplicates == report.already_there
    steps = [step for step, name, _ in service.points() if name == "loss"]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) > 100
    assert {value for _, name, value in service.points() if name == "spike"} == {"NaN"}
    events = [body["value"] for body in service.bodies("events")]
    assert events == list(range(50, 50 * len(events) + 1, 50))
    assert service.bodies("finish") == []

    again = sync(service.url, again=True)
    assert (again.sent, again.already_there, again.accepted) == (whole, whole, 0)
    assert len(service.taken) == whole


def test_sync_counts_and_repeats_harmlessly(
    service: HookService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = offline_run(monkeypatch)
    assert main([service.url]) == 0
    assert capsys.readouterr().out == f"{run.segment_id} process 0: sent 4  accepted 4  already there 0  rejected 0\n"
    assert service.points() == [(step, "loss", float(step)) for step in range(1, 6)]
    assert main([service.url]) == 0
    assert "sent 0  accepted 0  already there 0  rejected 0  sent earlier 4\n" in capsys.readouterr().out
    assert main(["--again"]) == 0  # the address of PACENOTE_URL
    assert "sent 4  accepted 0  already there 4  rejected 0\n" in capsys.readouterr().out
    other = HookService()
    try:
        assert main([other.url]) == 0  # what one service has says nothing about another
        assert "sent 4  accepted 4" in capsys.readouterr().out
        assert other.taken == service.taken
    finally:
        other.close()


def test_sync_says_when_it_does_not_add_up(
    scripted: Callable[[list[Reply]], HookService],
    monkeypatch: pytest.MonkeyPatch,
    environment: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    offline_run(monkeypatch)
    service = scripted(["ok", "ok", 422])
    assert main([service.url]) == 2
    out, err = capsys.readouterr()
    assert "sent 4  accepted 3  already there 0  rejected 1\n" in out
    assert "rejected.jsonl" in err
    assert len(list(environment.glob("*.rejected.jsonl"))) == 1

    service.script.extend([503] * 1000)
    assert main([service.url, "--again", "--patience", "0.05"]) == 1
    out, err = capsys.readouterr()
    assert "sent 0  accepted 0  already there 0  rejected 0  left 4\n" in out
    assert "not everything was sent: 503 told to answer 503" in err


def test_sync_without_a_service_leaves_all_and_tries_once(
    service: HookService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        offline_run(monkeypatch, name=name)
    service.close()
    assert main([service.url, "--patience", "0"]) == 1
    out, err = capsys.readouterr()
    assert out.count("left 4") == 3
    assert "3 spools: sent 0  accepted 0  already there 0  rejected 0  left 12\n" in out
    assert "Connection refused" in err


def test_sync_goes_on_where_an_interrupted_one_stopped(
    scripted: Callable[[list[Reply]], HookService], monkeypatch: pytest.MonkeyPatch
) -> None:
    offline_run(monkeypatch)
    service = scripted(["ok", "ok", *[500] * 1000])
    first = sync(service.url, patience=0.05)
    assert (first.sent, first.left, first.complete) == (2, 2, False)
    service.script.clear()
    second = sync(service.url)
    assert (second.sent, second.accepted, second.already_sent, second.left) == (2, 2, 2, 0)


def test_sync_leaves_a_living_process_its_spool(service: HookService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": 1.0})
    assert run._pipeline is not None
    run._pipeline.writing.close(0.0, False)
    run._pipeline.writing.done.wait(10)
    assert sync(service.url).sent == 2  # the writer is gone, and its lock with it
    monkeypatch.setenv("PACENOTE_MODE", "online")
    run = trainer_hooks.start("run", project="p")
    service.wait_for(lambda s: len(s.segments) == 2)
    report = sync(service.url)
    assert (report.in_use, report.sent) == (1, 0)
    run.finish()


def test_a_run_resumes_nothing_it_has_sent(service: HookService, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": 1.0})
    run.finish()
    report = sync(service.url)
    assert (report.sent, report.already_sent, report.complete) == (0, 3, True)


def test_damage_in_the_first_record_costs_only_that(
    service: HookService, monkeypatch: pytest.MonkeyPatch, environment: Path
) -> None:
    offline_run(monkeypatch)
    (part,) = environment.glob("*.spool")
    data = bytearray(part.read_bytes())
    data[40] ^= 1
    part.write_bytes(bytes(data))
    report = sync(service.url, patience=0.0)
    assert report.damaged == 1
    assert report.left == 3  # without a description nothing can be taken …
    service.segments[part.name.split(".")[0]] = {}  # … unless the service has it already
    report = sync(service.url)
    assert (report.accepted, report.left) == (3, 0)


def test_whole_spools_in_an_object_store_are_sent_and_then_gone(
    service: HookService, monkeypatch: pytest.MonkeyPatch, environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offline_run(monkeypatch)
    store = open_store(f"memory://{environment.parent.name}/spool")
    for part in environment.glob("*.spool"):  # a spool that was uploaded as it was
        store.put(part.name, part.read_bytes())
    assert main([service.url, "--spool", store.address]) == 0
    assert "sent 4  accepted 4" in capsys.readouterr().out
    assert store.list() == []


@pytest.mark.parametrize("address", ["ftp://x", "nonsense", "http://h:x"])
def test_a_bad_address_is_wrong_use(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([address]) == 2
    assert ("Port" if "h:x" in address else "it should look like") in capsys.readouterr().err
