"""`pacenote replay` against a real service: the published run itself, a run that memorizes, and what is refused."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serving import Serving, one_line, run
from typer.testing import CliRunner

from service.cli.main import app
from service.references.shipped import BUNDLES

STAGE1 = BUNDLES / "olmo3-7b" / "series" / "stage1.csv"
GOLDEN = Path(__file__).parents[1] / "golden" / "logs"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("replay"))
    yield serving
    serving.kill()


def replay(service: Serving, *arguments: str) -> tuple[int, str, str]:
    result = run("replay", *arguments, PACENOTE_URL=service.url)
    return result.returncode, result.stdout, result.stderr


def memorizing(path: Path) -> Path:
    """The published run as a wide table, its train loss 0.1 nats lower from step 300,000 on."""
    rows: dict[int, dict[str, float]] = {}
    with STAGE1.open() as file:
        for row in csv.DictReader(file):
            value = float(row["value"])
            step = int(row["step"])
            if row["metric"] == "train/ce_loss" and step > 300_000:
                value -= 0.1
            rows.setdefault(step, {})[row["metric"]] = value
    names = {"train/ce_loss": "train/CE loss", "heldout/c4_en/ce_loss": "eval/lm/c4_en-validation/CE loss"}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["_step", *names.values()])
        for step, values in sorted(rows.items()):
            writer.writerow([step, *(values.get(metric, "") for metric in names)])
    return path


def test_the_published_run_is_itself(service: Serving) -> None:
    status, out, error = replay(service, str(STAGE1), "--reference", "olmo3-7b", "--run", "itself")
    assert (status, error) == (0, "")
    assert "train/ce_loss (3,067 points)" in out
    assert "Verdict: consistent" in out
    fine = next(line for line in out.splitlines() if line.startswith("Judged fine"))
    assert {"train_drift", "heldout_regression"} <= set(fine.partition(": ")[2].split(", "))
    run_id = out.split("/runs/")[1].split()[0]
    detail = httpx.get(f"{service.url}/api/v1/runs/{run_id}", timeout=30).json()
    assert detail["open_alerts"] == 0
    assert detail["last_step"] == 1_413_635
    assert detail["progress"]["tokens_percent"] == pytest.approx(99.99, abs=0.01)
    assert httpx.get(f"{service.url}/api/v1/alerts", params={"run": run_id}, timeout=30).json()["items"] == []


def test_a_run_that_memorizes_is_caught(service: Serving, tmp_path: Path) -> None:
    path = memorizing(tmp_path / "memorizing.csv")
    status, out, error = replay(service, str(path), "--reference", "olmo3-7b")
    assert (status, error) == (1, "")
    assert "Verdict: drifting" in out
    assert "train_drift: yes" in out
    run_id = out.split("/runs/")[1].split()[0]
    assert httpx.get(f"{service.url}/api/v1/runs/{run_id}", timeout=30).json()["open_alerts"] >= 1


def test_a_restart_in_a_log_becomes_a_segment(service: Serving) -> None:
    path = GOLDEN / "parameter_golf_restart.txt"
    status, out, error = replay(service, str(path), "--reference", "lab", "--tokens-per-step", "1000")
    assert status in (0, 1), error
    assert "went back 1 times, to step 0" in out
    assert one_line(error), "lines that hold nothing known are counted"
    run_id = out.split("/runs/")[1].split()[0]
    segments = httpx.get(f"{service.url}/api/v1/runs/{run_id}", timeout=30).json()["segments"]
    assert [segment["superseded"] for segment in segments] == [True, False]
    assert segments[0]["config"] == {"replayed": "parameter_golf_restart.txt", "format": "key_value_log"}
    assert segments[0]["tokens_per_step"] == 1000


def test_dry_run_sends_nothing(service: Serving) -> None:
    before = httpx.get(f"{service.url}/api/v1/runs", timeout=30).json()
    status, out, _ = replay(service, str(GOLDEN / "llmc_main.log"), "--reference", "nothing", "--dry-run")
    assert status == 0
    assert "key value log, known by lines such as" in out
    assert "s/trl -> train/ce_loss (11 points, steps + 1)" in out
    after = httpx.get(f"{service.url}/api/v1/runs", timeout=30).json()
    assert [item["id"] for item in after["items"]] == [item["id"] for item in before["items"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv", "--reference", "olmo3-7b"], "none.csv: cannot be read"),
        ([str(GOLDEN / "SOURCE.md"), "--reference", "olmo3-7b"], "no known format"),
        ([str(GOLDEN / "torchtitan_losses.txt"), "--reference", "olmo3-7b"], "--map 'column 2=train/ce_loss'"),
        ([str(GOLDEN / "wandb_export.csv"), "--reference", "olmo3-7b"], "both mean train/ce_loss"),
        ([str(STAGE1), "--reference", "nothing"], "There is no reference nothing"),
        ([str(STAGE1), "--reference", "olmo3-7b", "--stage", "stage9"], "has no stage stage9"),
        ([str(STAGE1), "--reference", "olmo3-7b", "--map", "loss"], "write NAME=METRIC"),
        ([str(STAGE1), "--reference", "olmo3-7b", "--map", "loss=x"], "the log holds no 'loss'"),
        ([str(STAGE1), "--reference", "olmo3-7b", "--speed", "0"], "--speed must be above 0"),
        ([str(STAGE1), "--reference", "olmo3-7b", "--speed", "nan"], "--speed must be above 0"),
        ([str(STAGE1), "--reference", ""], "as Pacenote does"),
        ([str(STAGE1), "--reference", "../runs"], "There is nothing at /api/v1/references/../runs"),
        ([str(STAGE1), "--reference", "olmo3-7b", "--project", "x" * 300], "at most 256 bytes"),
        ([str(STAGE1), "--reference", "olmo3-7b", "--url", "http://[bad"], "is no address of a service"),
        ([str(STAGE1), "--reference", "olmo3-7b", "--url", "nothing"], "'http://'"),
        ([str(STAGE1), "--reference", "olmo3-7b", "--url", "http://127.0.0.1:9"], "does not answer"),
    ],
)
def test_what_is_refused(service: Serving, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["replay", *arguments], env={"PACENOTE_URL": service.url})
    assert result.exit_code == 2
    assert message in result.stderr
    assert one_line(result.stderr)


def test_a_token_that_no_header_carries_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for token in ("a-token-of\ntwo-lines", "a-t\u00f6ken-of-twenty-three"):
        monkeypatch.setenv("PACENOTE_TOKEN", token)
        result = CliRunner().invoke(app, ["replay", str(STAGE1), "--reference", "olmo3-7b"])
        assert result.exit_code == 2
        assert one_line(result.stderr)
        assert "PACENOTE_TOKEN holds" in result.stderr
        assert "ken-of" not in result.stderr


def test_no_proxy_stands_before_loopback(service: Serving) -> None:
    path = GOLDEN / "modded_nanogpt.txt"
    dead = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    result = run("replay", str(path), "--reference", "lab", "--run", "no-proxy", PACENOTE_URL=service.url, **dead)
    assert result.returncode in (0, 1), result.stderr
    assert "Verdict: " in result.stdout


def test_the_wrong_token(tmp_path: Path) -> None:
    serving = Serving(tmp_path, "--no-worker", PACENOTE_TOKEN="a-token-of-twenty-three")
    try:
        result = run("replay", str(STAGE1), "--reference", "olmo3-7b", PACENOTE_URL=serving.url)
        assert result.returncode == 2
        assert one_line(result.stderr)
        assert "token" in result.stderr
        result = run(
            "replay",
            str(GOLDEN / "modded_nanogpt.txt"),
            "--reference",
            "olmo3-7b",
            "--wait",
            "0.5",
            PACENOTE_URL=serving.url,
            PACENOTE_TOKEN="a-token-of-twenty-three",
        )
        assert result.returncode == 2, "nothing judges here"
        assert "no judgement within 0.5 s" in result.stderr
    finally:
        serving.kill()
