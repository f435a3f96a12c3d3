"""`pacenote report` and `pacenote check`, on a database and over HTTP."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from judged_world import TRAIN, JudgedWorld
from serving import Serving, one_line
from typer.testing import CliRunner

from service.cli.main import app
from service.database.engine import open_engine, reading
from service.database.models import Run
from service.judgements.view import reference_view

HELDOUT = "heldout/lab/ce_loss"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service whose database holds `sunk`, 0.9 below the lab's reference from step 200 on, `good`, and a namesake."""
    service = Serving(tmp_path_factory.mktemp("reports"))
    engine = open_engine(service.database_url)
    world = JudgedWorld(engine)
    for name, by in (("sunk", 0.9), ("good", 0.0)):
        run = world.run(name)
        with reading(engine) as session:
            metrics = reference_view(session, session.get_one(Run, run)).metrics
        train, held = metrics[TRAIN], metrics[HELDOUT]
        world.points(run, train.steps.tolist(), (train.values - by * (train.steps > 200)).tolist())
        world.points(run, held.steps.tolist(), held.values.tolist(), HELDOUT)
        world.judge(None).judge_run(run)
    engine.dispose()
    yield service
    service.end(signal.SIGTERM)


@pytest.fixture(params=["database", "http"])
def where(request: pytest.FixtureRequest, serving: Serving) -> list[str]:
    """Where the commands look."""
    return ["--database-url", serving.database_url] if request.param == "database" else ["--url", serving.url]


def pacenote(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_gate_opens_for_a_good_run_and_shuts_for_one_that_sank(where: list[str]) -> None:
    limits = ("--max-gap", "0.1", "--heldout", "±0.1")
    status, out, error = pacenote("check", "lab/good", *limits, *where)
    assert (status, error) == (0, "")
    assert out.count("ok: ") == 2
    status, out, _ = pacenote("check", "sunk", *limits, *where)
    assert status == 1
    assert f"FAILS: gap of {TRAIN}: −0." in out
    assert f"ok: {HELDOUT}: " in out
    assert pacenote("check", "sunk", "--max-gap", "0.1", "--at", "150", *where)[0] == 0


def test_without_limits_the_verdict_decides(where: list[str]) -> None:
    assert pacenote("check", "good", *where)[0] == 0
    status, out, _ = pacenote("check", "sunk", *where)
    assert (status, out.split(":")[:2]) == (1, ["FAILS", " verdict"])


def test_what_cannot_be_told_is_not_fine_unless_that_is_allowed(where: list[str]) -> None:
    status, out, _ = pacenote("check", "good", "--no-repeats", *where)
    assert (status, out.startswith("CANNOT TELL: repeated rows: ")) == (4, True)
    assert pacenote("check", "good", "--no-repeats", "--allow-cannot-tell", *where)[0] == 0
    assert pacenote("check", "sunk", "--no-repeats", "--max-gap", "0.1", "--allow-cannot-tell", *where)[0] == 1


def test_machines_get_the_numbers(where: list[str]) -> None:
    status, out, _ = pacenote("check", "sunk", "--max-gap", "0.1", "--format", "json", *where)
    answer = json.loads(out)
    one = answer["outcomes"][0]
    assert (status, answer["answer"], one["answer"], one["limit"]) == (1, "fails", "fails", 0.1)
    assert one["low"] <= one["measured"] <= one["high"] < -0.1


def test_the_same_report_from_both_and_it_can_be_verified(serving: Serving, tmp_path: Path) -> None:
    stored, served = tmp_path / "stored.html", tmp_path / "served.html"
    assert (
        pacenote("report", "sunk", "--format", "html", "-o", str(stored), "--database-url", serving.database_url)[0]
        == 0
    )
    assert pacenote("report", "lab/sunk", "--format", "html", "-o", str(served), "--url", serving.url)[0] == 0
    assert stored.read_bytes() == served.read_bytes()
    status, out, _ = pacenote("report", "--verify", str(stored))
    assert (status, "unchanged" in out) == (0, True)
    text = stored.read_text()
    for changed, told in (
        (text.replace("Drifting", "Matching"), "the page was changed"),
        (text.replace('"state":"drifting"', '"state":"matching"'), "its data were changed"),
    ):
        stored.write_text(changed)
        status, out, _ = pacenote("report", "--verify", str(stored))
        assert (status, told in out) == (1, True)


def test_markdown_is_for_an_issue_and_json_for_machines(where: list[str], tmp_path: Path) -> None:
    status, out, error = pacenote("report", "sunk", "--at", "100,400", *where)
    assert (status, error) == (0, "")
    assert out.startswith("# sunk: drifting\n")
    assert "| Metric (tolerance) | step 100, " in out
    file = tmp_path / "report.json"
    assert pacenote("report", "sunk", "--format", "json", "-o", str(file), *where)[0] == 0
    assert json.loads(file.read_text())["schema"] == "pacenote-report/1"
    assert pacenote("report", "--verify", str(file))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "nothing"], "There is no run nothing"),
        (["check", "00000000-0000-0000-0000-000000000000"], "There is no run 0000"),
        (["check", "good", "--max-gap", "soon"], "write a number above 0"),
        (["check", "good", "--tasks", "-0.1"], "write a number above 0"),
        (["check", "good", "--verdict", "matching", "--at", "100"], "verdict: is of the newest data"),
        (["check", "good", "--at", "100"], "at: goes with max_gap"),
        (["report", "good", "--at", "soon"], "'soon' is no step"),
        (["report"], "Name a run"),
        (["report", "good", "-o", f"{__file__}/x.md"], "cannot be written (Not a directory)"),
    ],
)
def test_what_is_refused_is_said_in_one_line(where: list[str], arguments: list[str], message: str) -> None:
    status, out, error = pacenote(*arguments, *where)
    assert (status, out) == (2, "")
    assert message in error
    assert one_line(error)


def test_what_is_no_service_or_no_report_is_refused(tmp_path: Path, serving: Serving) -> None:
    for url in ("http://127.0.0.1:9", "nonsense", serving.url + "/elsewhere"):
        status, _, error = pacenote("check", "good", "--url", url)
        assert (status, one_line(error)) == (2, True), url
    file = tmp_path / "x.html"
    file.write_bytes(b"\xff")
    assert pacenote("report", "--verify", str(file))[0] == 2
    file.write_text("<p>")
    assert "holds no report's data" in pacenote("report", "--verify", str(file))[2]
    assert pacenote("report", "--verify", str(tmp_path / "none"))[0] == 2
    assert "not both" in pacenote("check", "good", "--url", serving.url, "--database-url", serving.database_url)[2]
