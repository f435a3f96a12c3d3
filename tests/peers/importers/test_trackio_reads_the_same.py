"""Trackio's database, beside Trackio's own reader."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from peer_reading import Values, read_back, spelled

trackio: Any = pytest.importorskip("trackio")
storage: Any = pytest.importorskip("trackio.sqlite_storage")

BESIDE = ("step", "timestamp")  # Trackio's own fields of a row


def by_trackio(project: str) -> Values:
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for run in storage.SQLiteStorage.get_runs(project):
        for row in storage.SQLiteStorage.get_logs(project, run):
            for name, value in row.items():
                if name not in BESIDE and isinstance(value, int | float) and not isinstance(value, bool):
                    found.setdefault(run, {}).setdefault(name, []).append((row["step"], value))
    return spelled(found)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Trackio keeps its databases during one test."""
    made = tmp_path / "trackio"
    made.mkdir()
    for module in ("trackio.sqlite_storage", "trackio.utils"):
        monkeypatch.setattr(f"{module}.TRACKIO_DIR", made)
    return made


def test_a_project(folder: Path, tmp_path: Path) -> None:
    for run in ("first", "second"):
        steps = [*range(1, 60), *range(40, 80)]  # it went back, and did those steps again
        rows = [{"train/loss": 3 - place / 100, "nested": 1.0, "note": "x"} for place in range(len(steps))]
        rows[3]["train/loss"], rows[4]["train/loss"] = math.nan, -math.inf
        storage.SQLiteStorage.bulk_log("sweep", run, rows, steps=steps)
    (path,) = folder.glob("*.db")
    found = read_back(path, tmp_path)
    assert found == by_trackio("sweep")
    assert len(found["second"]["train/loss"]) == 99
