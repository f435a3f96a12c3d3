"""What holds for every command: help with an example, and wrong use in one line."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from service.cli import main as command_line
from service.cli.main import app, main

runner = CliRunner()
EXPECTED = {
    "demo",
    "serve",
    "worker",
    "replay",
    "backtest",
    "check",
    "report",
    "audit",
    "sync",
    "reference list",
    "reference show",
    "reference pull",
    "reference build",
    "reference rows",
    "reference export",
    "reference install",
    "follow",
    "import",
    "export",
    "channel add",
    "channel list",
    "channel test",
    "channel remove",
    "channel rotate",
    "channel switch",
    "channel deliveries",
    "channel replay",
    "alert ack",
    "alert assign",
    "alert comment",
    "alert list",
    "alert mute",
    "alert resolve",
    "alert show",
    "alert unmute",
    "deviation try",
    "rule list",
    "rule show",
    "rule set",
    "rule reset",
    "rule history",
    "rule try",
    "deviation add",
    "deviation list",
    "deviation end",
    "lab record",
    "database upgrade",
    "database current",
}


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words
        return
    for name, child in inner.items():
        yield from commands(child, (*words, name))


ALL = list(commands(typer.main.get_command(app)))


def test_every_command_is_there() -> None:
    assert {" ".join(words) for words in ALL} == EXPECTED


def test_the_version() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"pacenote {version('pacenote')}\n")


def test_the_short_option_for_help() -> None:
    for words in ([], ["serve"], ["channel", "add"]):
        assert "Usage: pacenote" in runner.invoke(app, [*words, "-h"], prog_name="pacenote").output


def test_the_readme_shows_commands_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `pacenote …` line of its code blocks, with `--help` behind it: no unknown command, option or argument."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    lines = [line.partition("  #")[0].strip() for block in text.split("```")[1::2] for line in block.splitlines()]
    shown = [shlex.split(line[line.index("pacenote ") :])[1:] for line in lines if "pacenote " in line]
    assert len(shown) >= 4
    for arguments in shown:
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            name, arguments = arguments[0], arguments[1:]
            command = command.commands[name]
        command.make_context("pacenote", arguments)  # raises what wrong use raises


@pytest.mark.parametrize("words", [(), *ALL, ("reference",), ("channel",), ("lab",), ("database",)], ids=" ".join)
def test_help_with_an_example(words: tuple[str, ...]) -> None:
    result = runner.invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert "Example: pacenote " + (words[0] if words else "") in result.output
    assert "Usage:" in result.output


def test_the_handbook_names_every_command() -> None:
    text = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    for words in ALL:
        assert f"pacenote {' '.join(words)}" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["serve", "--port", "x"], "Invalid value for '--port'"),
        (["serve", "--nothing"], "No such option: --nothing"),
        (["replay"], "Missing"),
        (["channel"], "Missing command"),
        (["channel", "add", "name", "pigeon", "http://x"], "Invalid value"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line.sys, "argv", ["pacenote", *arguments])
    assert main() == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("pacenote: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_no_arguments_show_the_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command_line.sys, "argv", ["pacenote"])
    assert main() == 0
    assert "Commands:" in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = (
        "import sys, service.cli.main\n"
        "print([name for name in ('numpy', 'pandas', 'sqlalchemy', 'fastapi', 'jax', 'plotly') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/x"),
            2,
            "pacenote: No space left on device: /data/x\n",
        ),
        (PermissionError(errno.EACCES, "Permission denied"), 2, "pacenote: Permission denied\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["disk full", "not allowed", "Ctrl-C"],
)
def test_trouble_outside_is_one_line(
    error: BaseException, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(command_line, "app", fails)
    assert main() == status
    assert capsys.readouterr().err == said


def test_a_reader_that_has_seen_enough() -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "service.cli.main", "serve", "--help"]
    reader, writer = os.pipe()
    os.close(reader)
    found = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert found.stderr == ""
