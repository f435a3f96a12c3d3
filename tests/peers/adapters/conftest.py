"""Adapters held to the real peers. Records go to a spool of the test's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests" / "trainer_hooks")]


@pytest.fixture
def spool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    monkeypatch.setenv("PACENOTE_SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.delenv("PACENOTE_LAUNCH_ID", raising=False)
    return tmp_path / "spool"
