"""`python -m reproduction.train`: it streams progress, takes signals between steps, and refuses what it cannot use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flax import nnx

from reproduction import train
from reproduction.olmo3 import checkpoint
from reproduction.olmo3.model import Config, Decoder


@pytest.fixture
def handlers() -> Iterator[None]:
    """Puts the signal handlers back that the command replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that compiles fast."""
    path = tmp_path_factory.mktemp("base") / "base.safetensors"
    config = Config(d_model=32, n_layers=1, n_heads=2, d_hidden=32)
    checkpoint.save(path, nnx.split(Decoder(config, nnx.Rngs(0)), nnx.Param)[1], config)
    return str(path)


def command(*arguments: str, spool: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PACENOTE_MODE": "offline", "PACENOTE_SPOOL_DIR": str(spool)}
    return subprocess.Popen(
        [sys.executable, "-m", "reproduction.train", "--progress", "json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_sigterm_ends_it_between_two_steps_with_everything_kept(tmp_path: Path, base: str) -> None:
    with command("--steps", "4000", "--rows", "64", "--base", base, spool=tmp_path) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        rest = [json.loads(line) for line in process.stdout]
        assert process.wait() == 128 + signal.SIGTERM, process.stderr and process.stderr.read()
    assert first.keys() == {"step", "steps", "loss"}
    assert (first["step"], first["steps"]) == (5, 4000)
    assert rest[-1]["updates"] < 4000
    assert rest[-1]["left_in_spool"] > 0
    spooled = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"train/ce_loss" in spooled
    assert b"heldout/lab/ce_loss" in spooled


def test_a_short_run_ends_well(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], handlers: None
) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    monkeypatch.setenv("PACENOTE_SPOOL_DIR", str(tmp_path))
    arguments = ["--sharding", "double", "--steps", "7", "--rows", "64", "--base", base, "--progress", "json"]
    assert train.main(arguments) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["step"] for line in lines[:-1]] == [5, 7]
    assert lines[-1]["updates"] == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--base", "/nowhere/base.safetensors"], "/nowhere/base.safetensors"),
        (["--rows", "1000000"], "1000000 rows asked for"),
        (["--hosts", "3"], "does not split over 3 hosts"),
    ],
)
def test_what_it_cannot_use_is_one_line_and_status_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    handlers: None,
) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "disabled")
    assert train.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_counts_below_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        train.main(["--steps", "0"])
    assert "1 or more" in capsys.readouterr().err
