"""`pacenote follow` against a real service: judged as it grows, resumed, refused."""

from __future__ import annotations

import csv
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serving import PACENOTE, Serving, environment, one_line, run
from wandb_server import FakeRun, WandbServer

from service.references.shipped import BUNDLES

STAGE1 = BUNDLES / "olmo3-7b" / "series" / "stage1.csv"
SINKS_AT = 300_000
WAIT = 60.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("follow"))
    yield serving
    serving.kill()


def variables(service: Serving, folder: Path) -> dict[str, str]:
    return {"PACENOTE_URL": service.url, "PACENOTE_SPOOL_DIR": str(folder / "spool")}


def memorizing() -> list[str]:
    """The published run as JSON lines, its train loss 0.1 nats lower from step 300,000 on."""
    rows: dict[int, dict[str, float]] = {}
    with STAGE1.open() as file:
        for row in csv.DictReader(file):
            sunk = row["metric"] == "train/ce_loss" and int(row["step"]) > SINKS_AT
            rows.setdefault(int(row["step"]), {})[row["metric"]] = float(row["value"]) - 0.1 * sunk
    return [json.dumps({"step": step} | values) + "\n" for step, values in sorted(rows.items())]


class Follow:
    """The command in a process of its own, its lines awaited."""

    def __init__(self, service: Serving, log: Path, *more: str) -> None:
        self.process = subprocess.Popen(
            [*PACENOTE, "follow", str(log), "--reference", "olmo3-7b", *more],
            env=environment(**variables(service, log.parent)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def until(self, text: str) -> str:
        """The next line that holds a text."""
        while True:
            line = self.lines.get(timeout=WAIT)
            if text in line:
                return line

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT)


def test_a_run_is_judged_as_it_grows(service: Serving, tmp_path: Path) -> None:
    log, content = tmp_path / "grows.jsonl", memorizing()
    healthy = next(at for at, line in enumerate(content) if json.loads(line)["step"] > SINKS_AT)
    log.write_text("".join(content[:healthy]))
    follow = Follow(service, log)
    try:
        follow.until(": consistent")
        with log.open("a") as file:
            file.writelines(content[healthy:])
        said = [follow.until("drifting"), follow.until("alert firing")]
    finally:
        assert follow.stop() == 0
    assert said[1].rstrip().endswith(")"), "with its address"
    result = run(
        "follow", str(log), "--reference", "olmo3-7b", "--resume", "--until-idle", "0.5", **variables(service, tmp_path)
    )
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("Going on with")
    assert "Verdict: drifting" in result.stdout
    run_id = result.stdout.split("/runs/")[1].split()[0]
    detail = httpx.get(f"{service.url}/api/v1/runs/{run_id}", timeout=30).json()
    assert [(s["start_step"], s["superseded"]) for s in detail["segments"]] == [(1, False)]
    assert detail["segments"][0]["config"] == {"followed": str(log), "format": "json_lines"}


def test_from_start_begins_anew(service: Serving, tmp_path: Path) -> None:
    log = tmp_path / "anew.jsonl"
    log.write_text("".join(json.dumps({"step": step, "x": 3.0}) + "\n" for step in range(1, 301)))
    given = ["follow", str(log), "--reference", "olmo3-7b", "--map", "x=train/ce_loss", "--tokens-per-step", "1000"]
    once = [*given, "--until-idle", "0"]
    assert run(*once, **variables(service, tmp_path)).returncode in (0, 1)
    result = run(*once, "--from-start", **variables(service, tmp_path))
    assert result.returncode in (0, 1), result.stderr
    run_id = result.stdout.split("/runs/")[1].split()[0]
    detail = httpx.get(f"{service.url}/api/v1/runs/{run_id}", timeout=30).json()
    assert [(s["start_step"], s["superseded"], s["tokens_per_step"]) for s in detail["segments"]] == [
        (0, True, 1000),
        (0, False, 1000),
    ]
    other = tmp_path / "other.jsonl"
    other.write_text(log.read_text())
    given[1] = str(other)
    result = run(*given, "--run", "anew", **variables(service, tmp_path))
    assert result.returncode == 2
    assert "was followed from" in result.stderr
    assert one_line(result.stderr)


def test_only_one_process_follows_a_run(service: Serving, tmp_path: Path) -> None:
    log = tmp_path / "twice.jsonl"
    log.write_text(json.dumps({"step": 1, "loss": 3.0}) + "\n")
    follow = Follow(service, log)
    try:
        follow.until("Following")
        result = run("follow", str(log), "--reference", "olmo3-7b", **variables(service, tmp_path))
        assert (result.returncode, one_line(result.stderr)) == (2, True)
        assert "another process follows the run twice" in result.stderr
    finally:
        assert follow.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wandb:lab/small", "--reference", "olmo3-7b"], "write wandb:ENTITY/PROJECT/RUN"),
        (["https://wandb.ai/lab/small", "--reference", "olmo3-7b"], "write wandb:ENTITY/PROJECT/RUN"),
        (["", "--reference", "olmo3-7b"], "the argument is empty"),
        (["/dev/zero", "--reference", "olmo3-7b"], "a pipe or a device"),
        (["none/here.log", "--reference", "olmo3-7b"], "there is no folder"),
        (["{log}", "--reference", "nothing"], "There is no reference nothing"),
        (["{log}", "--reference", "olmo3-7b", "--stage", "x"], "has no stage x"),
        (["{log}", "--reference", "olmo3-7b", "--resume"], "was not followed before"),
        (["{log}", "--reference", "olmo3-7b", "--resume", "--from-start"], "exclude each other"),
        (["{log}", "--reference", "olmo3-7b", "--format", "parquet"], "parquet cannot be followed as it grows"),
        (["{log}", "--reference", "olmo3-7b", "--url", "http://127.0.0.1:9"], "does not answer"),
        (["{log}", "--reference", "olmo3-7b", "--url", "x"], "no address of a service"),
    ],
)
def test_what_is_refused(service: Serving, tmp_path: Path, arguments: list[str], message: str) -> None:
    from typer.testing import CliRunner

    from service.cli.main import app

    log = tmp_path / "train.jsonl"
    log.write_text(json.dumps({"step": 1, "loss": 3.0}) + "\n")
    given = ["follow", *(argument.format(log=log) for argument in arguments)]
    clean = {name: None for name in os.environ if name.startswith("PACENOTE_")}
    result = CliRunner().invoke(app, given, env=clean | variables(service, tmp_path))
    assert result.exit_code == 2
    assert message in result.stderr
    assert one_line(result.stderr)


def test_a_run_at_wandb(service: Serving, tmp_path: Path) -> None:
    rows = [{"_step": step, "train/CE loss": 3.0 + step % 5 / 100} for step in range(1, 401)]
    server = WandbServer(FakeRun("abc", "abc", rows))
    given = ["follow", "wandb:lab/small/abc", "--reference", "lab", "--wandb-url", server.url, "--until-idle", "0"]
    try:
        result = run(*given, **variables(service, tmp_path))
    finally:
        server.close()
    assert "Verdict:" in result.stdout, result.stderr
    run_id = result.stdout.split("/runs/")[1].split()[0]
    detail = httpx.get(f"{service.url}/api/v1/runs/{run_id}", timeout=30).json()
    assert (detail["name"], detail["last_step"]) == ("abc", 400)
    assert detail["segments"][0]["config"]["followed"] == f"{server.url}/lab/small/abc"


def test_unknown_names_are_said(service: Serving, tmp_path: Path) -> None:
    log = tmp_path / "unknown.jsonl"
    log.write_text(json.dumps({"step": 1, "strange": 3.0}) + "\n")
    result = run("follow", str(log), "--reference", "olmo3-7b", "--until-idle", "0", **variables(service, tmp_path))
    assert result.returncode == 2
    assert "--map 'strange=train/ce_loss'" in result.stderr


def test_once_sends_what_is_there_and_goes_on_the_next_time(service: Serving, tmp_path: Path) -> None:
    log = tmp_path / "hourly.jsonl"
    lines = [json.dumps({"step": step, "loss": 3.0, "strange": 1.0}) + "\n" for step in range(1, 21)]
    log.write_text("".join(lines[:10]) + lines[10][:9])
    once = ["follow", str(log), "--reference", "olmo3-7b", "--once"]
    first = run(*once, **variables(service, tmp_path))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[1:] == [
        "The log is json lines:",
        "  loss -> train/ce_loss",
        "  not known, not sent: strange",
        "Sent 10 points, up to step 10.",
    ]
    log.write_text("".join(lines))
    proxied = variables(service, tmp_path) | {"http_proxy": "http://127.0.0.1:9"}
    second = run(*once, **proxied)
    assert second.stdout.startswith("Going on with")
    assert second.stdout.splitlines()[-1] == "Sent 20 points, up to step 20."
    late = run(*once, **variables(service, tmp_path))
    assert (late.returncode, late.stdout.splitlines()[-1]) == (0, "Sent 20 points, up to step 20.")
    both = run(*once, "--until-idle", "1", **variables(service, tmp_path))
    assert (both.returncode, one_line(both.stderr)) == (2, True)
