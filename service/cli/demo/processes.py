"""The demo's two other processes, the service and the trainer, and how they are ended."""

from __future__ import annotations

import base64
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

SETTINGS = ("PACENOTE_", "JAX_", "XLA_")  # beginnings of variables that would change the demo


class DemoError(RuntimeError):
    """The demo cannot go on; the message says why in one line."""


def free_port(wanted: int) -> int:
    """The loopback port, if this process could listen there; any free one for 0.

    Raises:
        OSError: it is in use, or not allowed.
        OverflowError: there is no such port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", wanted))
        return int(probe.getsockname()[1])


def _outside() -> dict[str, str]:
    """The environment without what would send the demo elsewhere: everything it says stays on loopback."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(SETTINGS) and not name.lower().endswith("_proxy")
    }


class Child:
    """A child process in a session of its own, so that Ctrl-C reaches it only through us, in order.

    It ends with us in any case: it watches the pipe that is its stdin.
    """

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path, *, read: bool = False) -> None:
        self.log = log
        self._file = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "service.cli.demo.child", *arguments],
            env={**_outside(), **environment},
            stdin=subprocess.PIPE,
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
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._file.close()
        return status

    def last_words(self) -> str:
        """The last line it wrote to its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"


class ServiceChild(Child):
    """`pacenote serve` on its own SQLite file."""

    def __init__(self, folder: Path, port: int) -> None:
        from service.settings import sqlite_url

        self.url = f"http://127.0.0.1:{port}"
        self._http = httpx.Client(base_url=self.url, timeout=30, trust_env=False)  # no proxy leads to loopback
        environment = {
            "PACENOTE_DATABASE_URL": sqlite_url(folder / "pacenote.db"),
            "PACENOTE_ALLOW_PRIVATE_CHANNELS": "true",
            # Sealed with a key that ends with the demo: nothing is left in the user's data folder.
            "PACENOTE_SECRET_KEY": base64.urlsafe_b64encode(os.urandom(32)).decode(),
            "PACENOTE_HOST": "127.0.0.1",
        }
        super().__init__(["service.cli.main", "serve", "--port", str(port)], environment, folder / "service.log")

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Return once it answers.

        Raises:
            DemoError: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.check()
            try:
                if self._http.get("/readyz", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise DemoError(f"The service did not answer within {timeout:.0f} s: {self.last_words()}")

    def check(self) -> None:
        """Raise a DemoError if it has ended."""
        if self.process.poll() is not None:
            raise DemoError(f"The service ended with status {self.process.returncode}: {self.last_words()}")

    def ask(self, method: str, path: str, **content: Any) -> Any:
        """The JSON answer to a request below /api/v1.

        Raises:
            DemoError: no answer, or another than a good one.
        """
        try:
            return self._http.request(method, f"/api/v1{path}", **content).raise_for_status().json()
        except httpx.HTTPError as error:
            raise DemoError(f"The service did not answer {method} {path} ({error}): {self.last_words()}") from error

    def end(self, timeout: float = 20.0) -> int:
        self._http.close()
        return super().end(timeout)


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
        arguments = ["reproduction.train", "--sharding", sharding, "--run", run, "--progress", "json"]
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
