"""The whole way over an S3 server and over a shared folder, with trainers and syncs that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from hook_service import HookService
from moto.server import ThreadedMotoServer

from trainer_hooks.stores import LocalStore, open_store
from trainer_hooks.sync import sync, watch

TRAINER = """
import sys, time, trainer_hooks, trainer_hooks.remote as remote
import numpy as np
remote.COPY_SECONDS = 0.1
run = trainer_hooks.start("killed", project="p", sample_rows=1, spool=sys.argv[1])
for step in range(1, 1_000_000):
    run.log(step, {"loss": 1.0 / step, "spike": float("nan")})
    if step % 50 == 0:
        run.log_rows(step, np.full((1, 4), step))
        run.event(step, "note", step)
    time.sleep(0.001)
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["s3", "file"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a spool's copy goes, empty."""
    if request.param == "file":
        return f"file://{tmp_path}/shared"
    url = request.getfixturevalue("s3")
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = tmp_path.name.replace("_", "-").lower()
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/spool"


@pytest.fixture
def trainer(address: str) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a trainer that may not call out: its spool is all it has."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        variables = {**os.environ, "PACENOTE_MODE": "offline"}
        started.append(subprocess.Popen([sys.executable, "-c", TRAINER, address], env=variables))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def watching(service: HookService, address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "trainer_hooks.sync", service.url, "--spool", address, "--watch", "--every", "0.05"],
        stdout=subprocess.PIPE,
        text=True,
    )


def losses(service: HookService) -> list[int]:
    return [step for step, name, _ in service.points() if name == "loss"]


def test_trainers_and_syncs_that_are_killed_lose_and_repeat_nothing(
    address: str, trainer: Callable[[], subprocess.Popen[bytes]], service: HookService
) -> None:
    first_trainer, first_sync = trainer(), watching(service, address)
    service.wait_for(lambda s: len(losses(s)) >= 200)
    first_sync.kill()
    first_sync.communicate()
    first_trainer.kill()
    second_trainer, second_sync = trainer(), watching(service, address)
    service.wait_for(lambda s: len(s.segments) == 2 and len(losses(s)) >= 600)
    second_trainer.kill()
    second_trainer.wait()
    second_sync.send_signal(signal.SIGINT)
    out, _ = second_sync.communicate(timeout=30)
    assert second_sync.returncode == 0
    assert "process 0: " in out
    assert "sent " in out.splitlines()[-1]

    report = sync(service.url, address)
    assert report.complete
    assert report.damaged == 0
    assert sync(service.url, address).sent == 0
    fresh = HookService()
    try:
        assert sync(fresh.url, address).accepted == len(fresh.taken) == len(service.taken)
        assert sorted(map(repr, fresh.taken)) == sorted(map(repr, service.taken))
        steps = losses(fresh)
        second = steps.index(1, 1)
        assert steps == [*range(1, second + 1), *range(1, len(steps) - second + 1)]
    finally:
        fresh.close()
    # What the machine's own disk still has, and the copy has not, is what was lost with the machine.
    local = LocalStore(Path(os.environ["XDG_DATA_HOME"]) / "pacenote" / "spool")
    assert len(local.list()) == 2
    assert sync(service.url, local.address).already_there == len(fresh.taken)


def test_a_kill_leaves_parts_that_are_whole(
    address: str, trainer: Callable[[], subprocess.Popen[bytes]], service: HookService
) -> None:
    process = trainer()
    store = open_store(address)
    while not (launches := store.names("")) or len(store.names(f"{launches[0]}/00000/00000")) < 4:
        time.sleep(0.02)
    process.kill()
    report = sync(service.url, address)
    assert report.complete
    assert report.damaged == 0
    steps = losses(service)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) > 50


def test_a_process_that_ends_without_finish_leaves_its_last_words(
    address: str, service: HookService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At `atexit` asyncio can look no name up any more."""
    if "AWS_ENDPOINT_URL" in os.environ:
        monkeypatch.setenv("AWS_ENDPOINT_URL", os.environ["AWS_ENDPOINT_URL"].replace("127.0.0.1", "localhost"))
    code = (
        "import sys, trainer_hooks\n"
        "run = trainer_hooks.start('run', project='p', spool=sys.argv[1])\n"
        "run.log(1, {'loss': 1.0})"
    )
    variables = {**os.environ, "PACENOTE_MODE": "offline"}
    ended = subprocess.run(
        [sys.executable, "-c", code, address], env=variables, capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stderr == ""
    assert sync(service.url, address).accepted == 2
    assert service.points() == [(1, "loss", 1.0)]


def test_ctrl_c_ends_a_watch_in_this_process(address: str, service: HookService) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts with &
    try:
        report = watch(service.url, address, pause=lambda seconds: os.kill(os.getpid(), signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (report.sent, report.trouble) == (0, "")
