"""A real service process that tests can kill, and start again on the same port and database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServiceProcess:
    """`pacenote serve` as a child process."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "service.log"
        self._environment = {
            **os.environ,
            "PACENOTE_DATABASE_URL": database_url,
            "PACENOTE_ALLOW_PRIVATE_CHANNELS": "true",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and return once it is ready."""
        command = [sys.executable, "-m", "service.cli.main", "serve", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"the service ended: {self.log.read_text()}"
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError(f"the service did not become ready: {self.log.read_text()}")

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ctrl-C."""
        self._end(signal.SIGINT)

    def _end(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(20)

    def get(self, path: str, **parameters: Any) -> Any:
        """JSON of a GET below /api/v1."""
        answer = httpx.get(f"{self.url}/api/v1{path}", params=parameters, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[ServiceProcess]:
    """A running service on a fresh database of either kind."""
    process = ServiceProcess(database_url, tmp_path)
    process.start()
    yield process
    process.stop()
