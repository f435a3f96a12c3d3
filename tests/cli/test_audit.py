"""`pacenote audit` on loaders of a module and of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import one_line, run
from typer.testing import CliRunner

from service.cli.main import app

LOADERS = """
import numpy as np
SIZE = 48
def rows(numbers):
    return np.asarray(numbers)[:, None] * 10 + np.arange(4)
def good(process_index, process_count, worker_count=0, start_step=0):
    mine = rows(np.arange(process_index, SIZE, process_count)).reshape(-1, 4)
    total = 24 // process_count
    return [mine[i : i + total] for i in range(start_step * total, len(mine), total)]
def unsharded():
    return [{"id": np.arange(4) + i, "noise": np.random.rand(4)} for i in range(0, SIZE, 4)]
def broken(process_index):
    raise RuntimeError("no data here")
def ends():
    raise SystemExit(0)
constant = 3
"""


@pytest.fixture
def loaders(tmp_path: Path) -> str:
    path = tmp_path / "my_loaders.py"
    path.write_text(LOADERS)
    return str(path)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command imports in this process is forgotten after the test."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    sys.modules.pop("my_loaders", None)


def test_a_good_loader(loaders: str) -> None:
    done = run("audit", f"{loaders}:good", "--hosts", "1,4", "--resume-at", "1", "--resume-hosts", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 hosts, 2 workers each → 2 hosts, 2 workers each at step 1" in done.stdout
    assert done.stdout.endswith("Each row is read once.\n")


def test_a_fault_is_named_and_exits_with_1(loaders: str, in_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(loaders).parent)  # a module is also looked for here
    command = ["audit", "my_loaders:unsharded", "--hosts", "3", "--key", "id"]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stderr) == (1, "")
    assert "3 hosts: nobody shards\n  All 3 hosts read the same rows in the same order.\n" in done.stdout
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert [cause["name"] for cause in found["causes"]] == ["nobody shards"]
    assert found["passes"][0]["twice"] == 96


def test_what_cannot_be_audited_is_one_line(loaders: str, in_process: None) -> None:
    for arguments, message in (
        ([loaders], "names no factory"),
        (["no_such_module:make"], "Cannot import no_such_module:make: ModuleNotFoundError"),
        ([f"{loaders}.py:good"], "There is no file"),
        ([f"{loaders}:missing"], "has no attribute 'missing'"),
        ([f"{loaders}:constant"], "is no function, it is 3"),
        ([f"{loaders}:rows"], "make_loader needs numbers, which an audit does not know"),
        ([f"{loaders}:good", "--hosts", "1;4"], "--hosts must be whole numbers with commas between"),
        ([f"{loaders}:good", "--resume-hosts", "2"], "need resume_at"),
    ):
        done = CliRunner().invoke(app, ["audit", *arguments])
        assert (done.exit_code, done.stdout) == (2, ""), arguments
        assert one_line(done.stderr), done.stderr
        assert message in done.stderr
    done = CliRunner().invoke(app, ["audit", f"{loaders}:broken", "--hosts", "2"])
    assert done.exit_code == 1
    assert "the loader fails\n  host 0 of 1: RuntimeError: no data here\n" in done.stdout


def test_a_script_or_a_loader_that_ends_the_process_is_not_taken_for_good(
    loaders: str, in_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_script.py").write_text("def main(): return []\nraise SystemExit(0)\n")
    done = CliRunner().invoke(app, ["audit", f"{tmp_path}/my_script.py:main"])
    assert done.exit_code == 2
    assert "Cannot import" in done.stderr
    done = CliRunner().invoke(app, ["audit", f"{loaders}:ends", "--hosts", "2"])
    assert done.exit_code == 1
    assert "the loader fails\n  host 0 of 1: SystemExit: 0\n" in done.stdout
