"""`pacenote follow` and the service die, again and again: every line of the log is in the run once, none twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from conftest import ServiceProcess

WAIT = 60.0
NOISE = np.random.default_rng(1).normal(0, 0.02, 20_000)


class Following:
    """`pacenote follow` in a process of its own."""

    def __init__(self, service: ServiceProcess, log: Path, *more: str) -> None:
        self.command = [sys.executable, "-m", "service.cli.main", "follow", str(log), "--reference", "lab", *more]
        self.said = log.with_name("follow.txt")
        self.environment = {
            **os.environ,
            "PACENOTE_URL": service.url,
            "PACENOTE_SPOOL_DIR": str(log.parent / "spool"),
            "PYTHONUNBUFFERED": "1",
        }

    def start(self) -> subprocess.Popen[str]:
        with self.said.open("a") as said:
            return subprocess.Popen(self.command, env=self.environment, stdout=said, stderr=said, text=True)


def write(log: Path, first: int, last: int, shift: float = 0.0) -> dict[int, float]:
    """Append steps to the log, the last line of each piece torn for a moment; returns what was logged."""
    made = {step: float(3.0 + NOISE[step] + shift) for step in range(first, last + 1)}
    content = "".join(json.dumps({"step": step, "loss": value}) + "\n" for step, value in made.items())
    with log.open("a") as file:
        for start in range(0, len(content), 4000):
            file.write(content[start : start + 4000])
            file.flush()
    return made


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def last_step(service: ServiceProcess) -> int:
    runs = [run for run in service.get("/runs")["items"] if run["role"] == "reproduction"]
    return (runs[0]["last_step"] or 0) if runs else 0


def reached(service: ServiceProcess, step: int) -> bool:
    return last_step(service) >= step


def series(service: ServiceProcess, **more: Any) -> dict[str, list[Any]]:
    run = next(run["id"] for run in service.get("/runs")["items"] if run["role"] == "reproduction")
    return service.get(f"/runs/{run}/series", metric="train/ce_loss", **more)["series"]["train/ce_loss"]


def test_killed_again_and_again(service: ServiceProcess, tmp_path: Path) -> None:
    log = tmp_path / "train.jsonl"
    following = Following(service, log)
    logged = write(log, 1, 2000)
    for round_ in range(2):
        process = following.start()
        there = 2000 + 3000 * round_
        until(partial(reached, service, there), "what was there is taken")
        logged |= write(log, there + 1, there + 3000)
        until(partial(reached, service, there + 1), "what is new is taken")
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT)
    process = following.start()
    until(lambda: following.said.read_text().count("Going on with") == 2, "it goes on")
    until(partial(reached, service, 8_000), "all is taken")
    service.kill()
    logged |= write(log, 8_001, 9_000)
    service.start()
    until(partial(reached, service, 9_000), "it goes on with the service that came back")
    again = write(log, 6_001, 6_500, 0.5)  # the trainer went back
    until(lambda: not reached(service, 7_000), "the restart supersedes")
    until(partial(reached, service, 6_500), "the restart is taken")
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 0
    assert "Stopped; the same command goes on from here." in following.said.read_text()
    live = series(service)
    wanted = {step: value for step, value in logged.items() if step <= 6000} | again
    assert dict(zip(live["steps"], live["values"], strict=True)) == wanted
    every = series(service, superseded=True)
    assert len(every["steps"]) == len(logged) + len(again), "nothing lost, nothing doubled"
