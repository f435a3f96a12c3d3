"""Four processes of jax.distributed, one of them killed, and the job restarted on two: one run that lacks nothing."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from service.database.engine import open_engine, reading
from service.database.models import Run
from service.fingerprints.repository import FingerprintRepository
from tests.e2e.conftest import ServiceProcess
from tests.e2e.host_trainer import CHECKPOINT, ROWS, loss_at
from tests.e2e.test_judging import until

TRAINER = Path(__file__).with_name("host_trainer.py")
SPOOLED_WITHIN = 2.0  # seconds: flushed to the operating system at least once a second, and a second to be woken


class Host:
    """One process of a job; a thread takes the steps it prints."""

    def __init__(
        self, coordinator: str, processes: int, rank: int, steps: tuple[int, int], url: str, folder: Path
    ) -> None:
        environment = {
            **os.environ,
            "PACENOTE_URL": url,
            "PACENOTE_SPOOL_DIR": str(folder / "spool"),
            "PACENOTE_MODE": "online",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "",
        }
        command = [sys.executable, str(TRAINER), coordinator, *map(str, (processes, rank, *steps))]
        self.errors = folder / f"{steps[0]}-{rank}.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=Path.cwd()
            )
        self.times: dict[int, float] = {}
        self.left_in_spool: int | None = None
        self._reached = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = re.fullmatch(r"(finished|\d+) ([\d.]+)\n", line)
            if said is None:  # gloo's, or cut off
                continue
            with self._reached:
                if said[1] == "finished":
                    self.left_in_spool = int(said[2])
                else:
                    self.times[int(said[1])] = float(said[2])
                self._reached.notify_all()
        with self._reached:
            self._reached.notify_all()

    def wait_beyond(self, step: int, seconds: float) -> None:
        """Return once it goes on so long after it made a step."""

        def beyond() -> bool:
            return max(self.times.values(), default=0) > self.times.get(step, float("inf")) + seconds

        with self._reached:
            self._reached.wait_for(lambda: beyond() or self.process.poll() is not None, 60)
        assert beyond(), self.errors.read_text()[-2000:]

    def end(self) -> None:
        """What it printed is read to the end."""
        self.process.kill()
        self.process.wait()
        self._thread.join(20)


def start(processes: int, steps: tuple[int, int], url: str, folder: Path, started: list[Host]) -> list[Host]:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{reserved.getsockname()[1]}"
    hosts = [Host(coordinator, processes, rank, steps, url, folder) for rank in range(processes)]
    started += hosts
    return hosts


@pytest.fixture
def started() -> Iterator[list[Host]]:
    """Whatever a test starts is ended with it."""
    hosts: list[Host] = []
    yield hosts
    for host in hosts:
        host.end()


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'pacenote.db')}"


@pytest.fixture
def served(sqlite_url: str, tmp_path: Path) -> Iterator[ServiceProcess]:
    process = ServiceProcess(sqlite_url, tmp_path)
    process.start()
    yield process
    process.stop()


def test_a_job_of_four_goes_on_as_two(
    served: ServiceProcess, sqlite_url: str, tmp_path: Path, started: list[Host]
) -> None:
    four = start(4, (0, 100_000), served.url, tmp_path, started)
    four[0].wait_beyond(CHECKPOINT, SPOOLED_WITHIN + 0.5)
    four[2].process.kill()
    died = time.monotonic()
    for host in four:  # what a launcher does when one is gone; the others hang in the reduction or fail
        host.end()
    reached = [max(host.times) for host in four]
    last = max(reached) + 20
    certain = min(max(s for s, at in host.times.items() if at < died - SPOOLED_WITHIN) for host in four)

    command = [sys.executable, "-m", "trainer_hooks.sync", served.url, "--spool", str(tmp_path / "spool")]
    synced = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert synced.returncode == 0, synced.stdout + synced.stderr

    two = start(2, (CHECKPOINT, last), served.url, tmp_path, started)
    assert [host.process.wait(60) for host in two] == [0, 0], two[0].errors.read_text()[-2000:]
    for host in two:
        host.end()
    assert [host.left_in_spool for host in two] == [0, 0]

    (run,) = served.get("/runs", project="e2e")["items"]
    detail = served.get(f"/runs/{run['id']}")
    segments = sorted(detail["segments"], key=lambda segment: segment["start_step"])
    assert [(s["start_step"], s["topology"]["hosts"], s["topology"]["processes"]) for s in segments] == [
        (0, 4, 4),
        (CHECKPOINT, 2, 2),
    ]

    answer = served.get(f"/runs/{run['id']}/series", metric="train/ce_loss")
    (series,) = answer["series"].values()
    assert series["steps"] == list(range(1, last + 1))
    assert series["values"] == [loss_at(step) for step in series["steps"]]
    answer = served.get(f"/runs/{run['id']}/series", metric="train/ce_loss", superseded=True)
    (series,) = answer["series"].values()
    assert certain - CHECKPOINT <= len(series["steps"]) - last <= max(reached) - CHECKPOINT + 1

    engine = open_engine(sqlite_url)
    with reading(engine) as session:
        found = session.scalars(select(Run.id).where(Run.name == "hosts")).one()
        rows = FingerprintRepository(session).rows(found)
    engine.dispose()
    assert rows is not None
    steps, counts = np.unique(rows.steps, return_counts=True)
    assert steps.tolist() == list(range(1, last + 1))
    assert (counts == ROWS).all()
    assert len(np.unique(rows.hashes)) == ROWS * last

    def judged(answer: Any) -> bool:
        return any(one["rule"] == "repeated_rows" and one["at_step"] == last for one in answer["items"])

    answer = until(served, judged, f"/runs/{run['id']}/judgements")
    (repeats,) = (one for one in answer["items"] if one["rule"] == "repeated_rows")
    assert repeats["state"] == "no", repeats  # what both launches read is no repeat
