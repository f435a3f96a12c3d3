"""The command that makes the pictures finds what is worth one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import screenshots


def test_it_finds_the_newest_run_its_alert_and_the_references(tmp_path: Path, incident_file: Path) -> None:
    with screenshots.serving(f"sqlite:///{incident_file}") as url:
        found = screenshots.addresses(url)
    lists, of_a_run = {"runs", "alerts", "references", "settings"}, {"run", "rules", "report", "compare"}
    assert found.keys() == lists | of_a_run | {"alert", "reference-lab", "reference-olmo3-7b"}
    assert found["run"].startswith("/runs/")


def test_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert screenshots.main([str(tmp_path / "none.db"), str(tmp_path)]) == 2
    assert "There is no database file" in capsys.readouterr().err
