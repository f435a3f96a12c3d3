"""Imports that are killed, and imports of the same content at the same time: nothing twice, nothing lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from importing import check, previewed
from sqlalchemy import Engine

from service.importers import storing
from service.importers.job import Options, Report, store
from service.importers.sole_import import WAITING, sole_import
from service.ingest.segments import run_uuid

OPTIONS = Options("test", tokens_per_step=1000)
RUN = run_uuid("test", "log", "stage1")
KILLED = """
import os, signal, sys
from pathlib import Path
from service.database.engine import open_engine
from service.importers import storing
from service.importers.folders import find
from service.importers.job import Options, look, store

storing.POINTS_AT_ONCE = 100
flush, left = storing.Storer._flush, int(sys.argv[3])

def counted(self):
    global left
    flush(self)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

storing.Storer._flush = counted
options = Options("test", tokens_per_step=1000)
(group,) = find(Path(sys.argv[1])).groups
store(open_engine(sys.argv[2]), look(group, options), options)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table that comes in many blocks, each of which is a transaction."""
    monkeypatch.setattr(storing, "POINTS_AT_ONCE", 100)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"step": {step}, "loss": {3 - step / 200000}}}\n' for step in range(1, 150_001)))
    return path


def live(engine: Engine, report: Report) -> int:
    check(engine, report)
    return report.stored


def test_after_kill_9_the_same_import_makes_it_whole(engine: Engine, log: Path) -> None:
    url = engine.url.render_as_string(hide_password=False)
    killed = subprocess.run([sys.executable, "-c", KILLED, log, url, "2"], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert live(engine, store(engine, previewed(log, OPTIONS), OPTIONS)) == 150_000
    again = store(engine, previewed(log, OPTIONS), OPTIONS)
    assert (again.stored, again.refused.total()) == (0, 150_000)


def test_two_imports_of_one_log_at_once(engine: Engine, log: Path) -> None:
    previews = [previewed(log, OPTIONS) for _ in range(2)]
    reports: list[Report] = []
    said: list[str] = []

    def run(place: int) -> None:
        reports.append(store(engine, previews[place], OPTIONS, say=said.append))

    threads = [threading.Thread(target=run, args=(place,)) for place in range(2)]
    waiting = threading.Event()
    with sole_import(engine, [RUN], said.append):
        for thread in threads:
            thread.start()
        while len(said) < 2:  # both have come to the lock
            waiting.wait(0.01)
    for thread in threads:
        thread.join()
    assert set(said) == {WAITING}
    assert sorted(report.stored for report in reports) == [0, 150_000]
    live(engine, max(reports, key=lambda report: report.stored))


def test_the_lock_is_free_again_after_an_error(engine: Engine) -> None:
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(KeyError), sole_import(engine, [RUN], said.append):
            raise KeyError
    assert said == []
