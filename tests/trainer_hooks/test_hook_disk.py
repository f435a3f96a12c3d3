"""The hook and a disk that fails under it, or a process that is killed while it writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hook_service import HookService
from test_hook_run import spooled

import trainer_hooks

CUT = """
import os, signal, sys, trainer_hooks
whole, calls = os.write, 0
def write(descriptor, data):
    global calls
    data = bytes(data)
    if b'"n":2' in data[:20]:
        whole(descriptor, data[: int(sys.argv[1])])
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(descriptor, data)
os.write = write
run = trainer_hooks.start("run", project="p")
run.event(1, "note", "whole")
run.event(2, "note", "cut")
run.finish()
"""


@pytest.mark.parametrize("size", [0, 3, 4, 8, 12, 60])
def test_a_kill_within_a_write_costs_that_record(environment: Path, size: int) -> None:
    command = [sys.executable, "-c", CUT, str(size)]
    done = subprocess.run(command, env={**os.environ, "PACENOTE_MODE": "offline"}, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [(kind, body.get("value")) for kind, body in spooled(environment)] == [
        ("segment", None),
        ("events", "whole"),
    ]


def test_a_spool_that_is_removed_under_the_run_costs_nothing_that_can_be_sent(
    service: HookService, environment: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = trainer_hooks.start("run", project="p")
    for step in range(1, 4):
        run.log(step, {"loss": 1.0})
        service.wait_for(lambda s, step=step: len(s.points()) == step)
        for path in environment.iterdir():
            path.unlink()
        environment.rmdir()
    run.log(4, {"loss": 1.0})
    report = run.finish()
    assert (report.left_in_spool, report.dropped) == (0, 0)
    assert [point[0] for point in service.points()] == [1, 2, 3, 4]
    assert caplog.text.count("was removed under the run") == 1


def test_what_was_in_a_removed_spool_is_counted(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    run = trainer_hooks.start("run", project="p")
    run.event(1, "note", "lost")
    assert run._pipeline is not None
    while run._pipeline.journal.appended < 2 or run._pipeline.journal._memory:
        time.sleep(0.005)
    next(environment.glob("*.spool")).unlink()
    run.event(2, "note", "kept")
    report = run.finish()
    assert (report.dropped, report.left_in_spool) == (2, 3)
    kept = [(kind, body.get("value")) for kind, body in spooled(environment)]
    note = {"trainer_hooks": {"dropped": {"over memory or cap": 2}}}
    assert kept == [("segment", None), ("events", "kept"), ("events", note), ("finish", None)]


def test_a_report_does_not_call_spooled_what_was_never_written(
    environment: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment.write_text("a file where the folder should be")
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": 1.0})
    report = run.finish()
    assert (report.sent, report.left_in_spool, report.dropped) == (0, 0, 3)
    assert "3 records are lost" in caplog.text


def test_refused_records_are_kept_up_to_a_size(
    service: HookService, environment: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trainer_hooks.sender.ASIDE_BYTES", 1000)
    service.script.extend(["ok", *[422] * 50])
    run = trainer_hooks.start("run", project="p")
    for step in range(50):
        run.event(step, "note", "x" * 50)
    assert run.finish().rejected == 50
    (aside,) = environment.glob("*.rejected.jsonl")
    assert 0 < aside.stat().st_size <= 1000
    assert all(json.loads(line)["status"] == 422 for line in aside.read_text().splitlines())
    assert caplog.text.count("further refused records are only counted") == 1


def test_a_user_without_a_home_has_a_spool_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.delenv("PACENOTE_SPOOL_DIR")
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"loss": 1.0})
    assert run.finish().left_in_spool == 3
    assert len(list((tmp_path / f"pacenote-{os.getuid()}" / "pacenote" / "spool").iterdir())) == 1
