"""The demo's two other processes, the service and the trainer, and how they are ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx


class DemoError(RuntimeError):
    """The demo cannot go on; the message says why in one line."""


def port_is_free(port: int) -> bool:
    """Whether this process could listen on the loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _outside() -> dict[str, str]:
    """The environment without what would send the demo elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PACENOTE_")}


class Child:
    """A child process in a session of its own, so that Ctrl-C reaches it only through us, in order."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path, *, read: bool = False) -> None:
        self.log = log
        self._file = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**_outside(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if read else self._file,
            stderr=self._file,
            start_new_session=True,
        )

    def end(self, timeout: float = 20.0) -> int:
        """Ask it to end, insist after `timeout` seconds; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._file.close()
        return status

    def last_words(self) -> str:
        """The last line it wrote to its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"


class ServiceChild(Child):
    """`pacenote serve` on its own SQLite file."""

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        environment = {
            "PACENOTE_DATABASE_URL": f"sqlite:///{folder / 'pacenote.db'}",
            "PACENOTE_ALLOW_PRIVATE_CHANNELS": "true",
            "PACENOTE_HOST": "127.0.0.1",
        }
        super().__init__(["-m", "service.cli.main", "serve", "--port", str(port)], environment, folder / "service.log")

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Return once it answers.

        Raises:
            DemoError: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise DemoError(f"The service ended at once: {self.last_words()}")
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise DemoError(f"The service did not answer within {timeout:.0f} s: {self.last_words()}")


class TrainerChild(Child):
    """`python -m reproduction.train`; its progress lines are read by a thread of our own."""

    def __init__(self, folder: Path, url: str, *, sharding: str, run: str) -> None:
        self.progress: dict[str, Any] = {}
        environment = {
            "PACENOTE_URL": url,
            "PACENOTE_MODE": "online",
            "PACENOTE_SPOOL_DIR": str(folder / "spool"),
            "JAX_PLATFORMS": "cpu",
        }
        arguments = ["-m", "reproduction.train", "--sharding", sharding, "--run", run, "--progress", "json"]
        super().__init__(arguments, environment, folder / "trainer.log", read=True)
        self._reader = threading.Thread(target=self._read, name="trainer progress", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.progress = {**self.progress, **json.loads(line)}
            except ValueError:
                continue  # something else printed by a library
