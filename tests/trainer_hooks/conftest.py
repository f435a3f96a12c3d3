from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hook_service import HookService, Reply

from trainer_hooks import sender, writer


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A spool of its own for each test, no variables from outside, and waits a hundred times shorter."""
    for name in ("URL", "TOKEN", "PROJECT", "MODE", "HEADERS", "LAUNCH_ID"):
        monkeypatch.delenv(f"PACENOTE_{name}", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    spool = tmp_path / "spool"
    monkeypatch.setenv("PACENOTE_SPOOL_DIR", str(spool))
    monkeypatch.setattr(sender, "FIRST_WAIT", 0.005)
    monkeypatch.setattr(sender, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(writer, "RECORD_SECONDS", 0.02)
    monkeypatch.setattr(writer, "POLL_SECONDS", 0.005)
    return spool


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookService]:
    running = HookService()
    monkeypatch.setenv("PACENOTE_URL", running.url)
    yield running
    running.close()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[Reply]], HookService]]:
    """A service that answers the first requests as told."""
    running: list[HookService] = []

    def make(script: list[Reply]) -> HookService:
        running.append(HookService(script))
        monkeypatch.setenv("PACENOTE_URL", running[-1].url)
        return running[-1]

    yield make
    for one in running:
        one.close()
