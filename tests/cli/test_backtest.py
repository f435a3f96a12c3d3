"""`pacenote backtest`: logs and stored runs judged as they grew, against what the rules say of each prefix."""

from __future__ import annotations

import csv
import itertools
import json
import uuid
from pathlib import Path

import numpy as np
import pytest
from serving import one_line
from sqlalchemy import Engine, func, select
from typer.testing import CliRunner

from service.backtests.timeline import told
from service.cli.backtesting import of_log, of_run
from service.cli.main import app
from service.database.engine import open_engine, reading
from service.database.migrate import ensure_schema
from service.database.models import Alert, JudgementRow, Run
from service.detect.engine import FAMILY_OF_RULE, evaluate
from service.detect.replay import prefix
from service.judgements.view import build_view
from service.references.shipped import BUNDLES, install_shipped
from service.settings import Settings

SIGNATURE = Path(__file__).parents[1] / "golden" / "batch_signature"
SIBLING = BUNDLES / "lab" / "siblings" / "order-seed-1.csv"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    address = f"sqlite:///{tmp_path_factory.mktemp('backtest') / 'pacenote.db'}"
    engine = open_engine(address)
    ensure_schema(engine)
    install_shipped(engine)
    engine.dispose()
    return address


def backtest(url: str, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["backtest", *arguments, "--database-url", url])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def restarted(path: Path) -> Path:
    """The real replay as a log: it says a restart at 220 by going back over ten steps that were then done again."""
    with (SIGNATURE / "lab_replays.csv").open() as file:
        rows = list(csv.DictReader(file))
    lost = [dict(row, **{"train/ce_loss": str(float(row["train/ce_loss"]) + 0.3)}) for row in rows[220:230]]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows([*rows[:220], *lost, *rows[220:]])
    return path


def test_a_healthy_log_is_good(url: str) -> None:
    status, out, error = backtest(url, str(SIBLING), "--reference", "lab", "--every", "25")
    assert (status, error) == (0, "")
    assert "order-seed-1.csv beside lab" in out
    assert "data_order: cannot tell -> no" in out
    assert "train_drift: cannot tell -> no" in out
    last = out.split("At the end:")[1]
    assert all(f"  {rule}: " in last for rule in FAMILY_OF_RULE)
    assert "yes" not in out


def test_a_replay_is_said_when_it_could_be_and_why_not_earlier(url: str, tmp_path: Path) -> None:
    path = restarted(tmp_path / "log.csv")
    status, out, error = backtest(url, str(path), "--reference", "lab", "--every", "4", "--rule", "replayed_batches")
    assert status == 1
    assert one_line(error)
    assert "went back 1 time;" in error
    said = next(line for line in out.splitlines() if "no -> yes" in line)
    assert 236 <= int(said.split()[1].replace(",", "")) <= 284
    assert "Since step 221 (a restart) the run reads its own batches of step 121 on again, 100 steps later" in out
    assert "began at step 221: said " in out
    assert "not earlier: at step 2" in out
    assert "shown: replay since a restart" in out
    assert "train_drift" not in out


def test_json_lines_are_the_judgements_of_the_prefixes(url: str, tmp_path: Path) -> None:
    path = restarted(tmp_path / "log.csv")
    status, out, _ = backtest(url, str(path), "--reference", "lab", "--every", "20", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 1
    assert {line["rule"] for line in lines} == set(FAMILY_OF_RULE)
    engine = open_engine(url)
    timeline = of_log(engine, path, "lab", None, None, [])
    engine.dispose()
    assert timeline.spans == [(1, 230), (221, 320)]
    for line in (line for line in lines if line["rule"] == "replayed_batches"):
        views = [
            v for v, (first, last) in zip(timeline.views, timeline.spans, strict=True) if first <= line["look"] <= last
        ]
        answers = [next(j for j in evaluate(prefix(v, line["look"])) if j.rule == line["rule"]) for v in views]
        assert (line["state"], line["summary"]) in [(j.state, j.summary) for j in answers]


def test_what_a_restart_took_back_was_judged_before_it_did(url: str, tmp_path: Path) -> None:
    engine = open_engine(url)
    timeline = of_log(engine, restarted(tmp_path / "log.csv"), "lab", None, None, [])
    engine.dispose()
    before, after = timeline.views
    assert before.metrics["train/ce_loss"].steps[-1] == 230
    assert [s.start_step for s in before.segments] == [0]
    assert [s.start_step for s in after.segments] == [0, 220]
    lost, kept = before.metrics["train/ce_loss"].values[220:230], after.metrics["train/ce_loss"].values[220:230]
    assert lost - kept == pytest.approx(np.full(10, 0.3))
    assert before.metrics["train/ce_loss"].tokens[9] == 10 * 1024


def test_what_was_not_done_again_is_not_live_any_more(url: str, tmp_path: Path) -> None:
    steps = [*range(1, 51), *range(41, 61, 2)]
    path = tmp_path / "log.csv"
    path.write_text("step,train/ce_loss\n" + "".join(f"{step},{3.0 + 0.001 * i}\n" for i, step in enumerate(steps)))
    engine = open_engine(url)
    timeline = of_log(engine, path, "lab", None, None, [])
    engine.dispose()
    assert timeline.views[1].metrics["train/ce_loss"].steps.tolist() == [*range(1, 41), *range(41, 61, 2)]


def test_every_change_and_nothing_else_is_said(url: str) -> None:
    engine = open_engine(url)
    timeline = of_log(engine, SIBLING, "lab", None, None, [])
    engine.dispose()
    said = told(timeline, 10, ["train_drift", "data_order"])
    for rule in ("train_drift", "data_order"):
        changes = [s for s in said if s.judgement.rule == rule and not s.last]
        states = [s.judgement.state for s in changes]
        assert all(a != b for a, b in itertools.pairwise(states))
        assert [s.before and s.before.state for s in changes] == [None, *states[:-1]]
        (last,) = [s for s in said if s.judgement.rule == rule and s.last]
        assert last.step == 400
        assert last.judgement.state == states[-1]
    assert timeline.looks[-1].step == 400


def store(url: str, name: str) -> str:
    """A sibling's points as a live run's, through the API's own ingest."""
    from fastapi.testclient import TestClient

    from service.app import create_app

    client = TestClient(create_app(Settings(database_url=url, worker=False)))
    segment = str(uuid.uuid4())
    body = {
        "process": 0, "seq": 0, "sent_at": 1.0, "project": "lab", "run": name, "role": "reproduction",
        "reference": "lab", "stage": "stage1", "kind": "trainer", "start_step": 0, "start_tokens": None,
        "tokens_per_step": 1024, "ramp": None, "forked_from": None, "topology": {"hosts": 4}, "config": {},
        "versions": {}, "data": None, "sample_rows": 1, "started_at": 1.0,
    }  # fmt: skip
    with client:
        assert client.put(f"/api/v1/segments/{segment}", json=body).status_code < 300
        rows = [row for row in csv.DictReader(SIBLING.open()) if row["metric"] == "train/ce_loss"]
        steps = [int(row["step"]) for row in rows]
        points = {
            "process": 0, "seq": 0, "sent_at": 1.0, "steps": steps, "times": [1.0] * len(steps),
            "metrics": {"train/ce_loss": [float(row["value"]) for row in rows]},
        }  # fmt: skip
        assert client.post(f"/api/v1/segments/{segment}/batches", json=points).status_code == 202
    return name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv", "--reference", "lab"], "there is no file and no run none.csv"),
        ([str(SIBLING)], "a log needs --reference"),
        ([str(SIBLING), "--reference", "nothing"], "no reference named nothing is installed"),
        ([str(SIBLING), "--reference", "lab", "--stage", "stage9"], "lab has no stage stage9; it has stage1"),
        (
            [str(SIBLING), "--reference", "lab", "--rule", "horoscope"],
            "there is no rule horoscope; there are",
        ),
        ([str(SIBLING), "--reference", "lab", "--every", "0"], "--every must be 1 or more"),
        ([str(SIBLING), "--reference", "lab", "--map", "loss"], "write NAME=METRIC"),
        ([str(SIGNATURE / "SOURCE.md"), "--reference", "lab"], "SOURCE.md"),
    ],
)
def test_what_is_refused(url: str, arguments: list[str], message: str) -> None:
    status, out, error = backtest(url, *arguments)
    assert status == 2
    assert out == ""
    assert message in error
    assert one_line(error)


def test_a_log_is_set_beside_all_that_a_stored_run_is(url: str) -> None:
    """Without what the reference says of itself a log's answers would be others than those of the same run, live."""
    engine = open_engine(url)
    try:
        with reading(engine) as session:
            stored = Run(id=-1, project_id=-1, reference="olmo3-7b", stage="stage1")
            known = build_view(session, stored)
        (view,) = of_log(engine, SIBLING, "olmo3-7b", None, None, []).views
    finally:
        engine.dispose()
    assert known.recipe.knots, "stage 1 was put together from several recordings"
    assert known.schedule is not None
    assert view.schedule is not None
    assert np.array_equal(view.schedule.values, known.schedule.values)
    for name in ("recipe", "tolerances", "tasks", "heldout", "reference_name", "reference_version", "reference_items"):
        assert getattr(view, name) == getattr(known, name), name
    assert {name: len(series) for name, series in view.reference.items()} == {
        name: len(series) for name, series in known.reference.items()
    }
    assert len(view.siblings) == len(known.siblings)
    assert (view.expected_rows is None) == (known.expected_rows is None)


def test_a_stored_run_by_name_and_id(engine: Engine, database_url: str) -> None:
    install_shipped(engine)
    name = store(database_url, "healthy")
    status, out, error = backtest(database_url, name, "--every", "50")
    assert (status, error) == (0, "")
    assert "healthy beside lab" in out
    assert "train_drift: cannot tell -> no" in out
    with reading(engine) as session:
        run = session.scalars(select(Run).where(Run.name == name)).one()
        live = of_run(engine, str(run.uuid), None).views[0]
        assert [j.to_json() for j in evaluate(live)] == [
            s.judgement.to_json() for s in told(of_run(engine, name, "lab"), 100, None) if s.last
        ]
        assert session.scalar(select(func.count()).select_from(JudgementRow)) == 0, "a backtest keeps nothing"
        assert session.scalar(select(func.count()).select_from(Alert)) == 0
    status, _, error = backtest(database_url, name, "--reference", "nothing")
    assert status == 2
    assert one_line(error)
