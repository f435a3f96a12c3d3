"""kill -9 of the trainer mid-run and of the service mid-ingest: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from service.database.engine import open_engine, reading
from service.fingerprints.repository import FingerprintRepository
from service.runs.listing import Listing
from service.runs.repository import RunRepository
from tests.e2e.conftest import ServiceProcess
from tests.e2e.crash_trainer import ROWS, loss_at

TRAINER = Path(__file__).with_name("crash_trainer.py")
SPOOLED_WITHIN = 2.0  # seconds: flushed to the operating system at least once a second, and a second to be woken


class Trainer:
    """The crash trainer as a child process, its steps read as it prints them."""

    def __init__(self, steps: int, url: str, spool: Path) -> None:
        environment = {**os.environ, "PACENOTE_URL": url, "PACENOTE_SPOOL_DIR": str(spool), "PACENOTE_MODE": "online"}
        command = [sys.executable, str(TRAINER), str(steps)]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self.times: dict[int, float] = {}
        self.left_in_spool: int | None = None

    def read_until(self, step: int) -> None:
        """Return once the trainer has made so many steps, or has finished."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            first, second = line.split()
            if first == "finished":
                self.left_in_spool = int(second)
                return
            self.times[int(first)] = float(second)
            if int(first) >= step:
                return


@pytest.fixture
def trainers() -> Iterator[list[Trainer]]:
    """Whatever a test starts is ended with it."""
    started: list[Trainer] = []
    yield started
    for trainer in started:
        trainer.process.kill()
        trainer.process.wait()


def stored_steps(service: ServiceProcess, database_url: str) -> int:
    """How many steps the service holds, after checking that each is there once and exact, with its rows."""
    (run,) = service.get("/runs", project="e2e")["items"]
    answer = service.get(f"/runs/{run['id']}/series", metric="train/ce_loss", superseded=True)
    (series,) = answer["series"].values()
    steps = series["steps"]
    assert steps == list(range(1, len(steps) + 1))
    assert series["values"] == [loss_at(step) for step in steps]
    engine = open_engine(database_url)
    with reading(engine) as session:
        found = RunRepository(session).page(Listing(project="e2e"))[0][0].run
        rows = FingerprintRepository(session).rows(found.id)
    engine.dispose()
    assert rows is not None
    read, counts = np.unique(rows.steps, return_counts=True)
    assert (counts == ROWS).all()
    assert len(np.unique(rows.hashes)) == ROWS * len(read)
    assert (read == np.arange(1, len(read) + 1)).all()
    assert abs(len(read) - len(steps)) * 0.002 < SPOOLED_WITHIN
    return len(steps)


def test_a_killed_trainer_leaves_a_spool_that_sync_sends_once(
    service: ServiceProcess, database_url: str, tmp_path: Path, trainers: list[Trainer]
) -> None:
    spool = tmp_path / "spool"
    trainer = Trainer(100_000, service.url, spool)
    trainers.append(trainer)
    trainer.read_until(1500)
    trainer.process.kill()
    trainer.process.wait()
    trainer.read_until(100_000)  # what it had printed before it died
    died = max(trainer.times.values())
    certain = sum(at < died - SPOOLED_WITHIN for at in trainer.times.values())

    command = [sys.executable, "-m", "trainer_hooks.sync", service.url, "--spool", str(spool)]
    for _ in range(2):  # again is harmless
        synced = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert synced.returncode == 0, synced.stdout + synced.stderr
    assert certain <= stored_steps(service, database_url) <= len(trainer.times) + 1


def test_a_killed_service_loses_and_doubles_nothing(
    service: ServiceProcess, database_url: str, tmp_path: Path, trainers: list[Trainer]
) -> None:
    steps = 2000
    trainer = Trainer(steps, service.url, tmp_path / "spool")
    trainers.append(trainer)
    for until in (400, 900, 1400):
        trainer.read_until(until)
        service.kill()
        service.start()
    trainer.read_until(steps + 1)
    assert trainer.process.wait(60) == 0
    assert trainer.left_in_spool == 0
    assert stored_steps(service, database_url) == steps
