"""Exports are whole and exact: every format is read back and compared with what was sent."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from service.cli.main import app
from service.exporters import run_series
from service.importers.detect import open_log
from service.series.formats import exact_table
from service.series.repository import Points
from service.settings import Settings
from service.worker.seal import seal_due
from tests.ingest.store_client import Store, create_store

TRAIN, HELDOUT = "train/ce_loss", "heldout/c4/ce_loss"
ODD = [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1 / 3]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A run of 40 steps that went back to step 20 once; 6 odd values first, an evaluation every 10 steps."""
    with TestClient(create_store(Settings(database_url=database_url))) as client:
        store = Store(client, "lab")
        first = store.start("a run", tokens_per_step=10)
        values = [*ODD, *(2.0 + step / 7 for step in range(7, 41))]
        held = [step / 3 if step % 10 == 0 else None for step in range(1, 41)]
        steps = list(range(1, 41))
        times = [1000.5 + step for step in steps]
        assert store.batch(first, steps, {TRAIN: values, HELDOUT: held}, times=times).status_code == 202
        second = store.start("a run", tokens_per_step=10, start_step=20)
        answer = store.batch(second, list(range(21, 31)), {TRAIN: [9.0] * 10}, times=[2000.0 + s for s in range(10)])
        assert answer.status_code == 202
        yield store


LIVE = {**dict(enumerate([*ODD, *(2.0 + step / 7 for step in range(7, 21))], 1)), **dict.fromkeys(range(21, 31), 9.0)}
LIVE_HELDOUT = {10: 10 / 3, 20: 20 / 3}


@pytest.fixture(params=["journal", "sealed", "small windows"])
def stored(request: pytest.FixtureRequest, store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sealed":
        seal_due(engine)
    if request.param == "small windows":
        monkeypatch.setattr(run_series, "PIECE", 3)
    return str(engine.url.render_as_string(hide_password=False))


def export(url: str, *arguments: object) -> Result:
    result = CliRunner().invoke(app, ["export", *map(str, arguments), "--database-url", url])
    assert result.exit_code == 0, result.output
    return result


def same(found: dict[int, float], wanted: dict[int, float]) -> None:
    assert list(found) == list(wanted)
    np.testing.assert_array_equal(list(found.values()), list(wanted.values()))
    assert [np.signbit(v) for v in found.values() if v == 0] == [np.signbit(v) for v in wanted.values() if v == 0]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_format_is_whole_and_exact(stored: str, tmp_path: Path) -> None:
    check_csv(stored, tmp_path)
    check_columns(stored, tmp_path, "parquet")
    check_columns(stored, tmp_path, "arrow")
    check_lines(stored, tmp_path, "jsonl", "step", "time")
    check_lines(stored, tmp_path, "wandb", "_step", "_timestamp")
    check_tensorboard(stored, tmp_path)
    check_stdout(stored)


def check_csv(stored: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    assert "32 points of 2 metrics" in export(stored, "lab/a run", "--out", path).stdout
    rows = read_csv(path)
    same({int(r["step"]): float(r["value"]) for r in rows if r["metric"] == TRAIN}, LIVE)
    same({int(r["step"]): float(r["value"]) for r in rows if r["metric"] == HELDOUT}, LIVE_HELDOUT)
    assert all(float(row["tokens"]) == 10 * int(row["step"]) for row in rows)
    export(stored, "a run", "--out", path, "--superseded")
    rows = [row for row in read_csv(path) if row["metric"] == TRAIN]
    assert len(rows) == 50
    assert sum(row["live"] == "true" for row in rows) == 30
    assert len({row["segment"] for row in rows}) == 2


def check_columns(stored: str, tmp_path: Path, form: str) -> None:
    def read(*more: str) -> Any:
        path = tmp_path / "x"
        export(stored, "a run", "--format", form, "--out", path, *more)
        if form == "parquet":
            return pq.read_table(path).to_pandas()
        with pa.ipc.open_stream(path.read_bytes()) as reader:
            return reader.read_all().to_pandas()

    frame = read()
    for metric, wanted in ((TRAIN, LIVE), (HELDOUT, LIVE_HELDOUT)):
        mine = frame[frame.metric == metric]
        same(dict(zip(mine.step.tolist(), mine.value.tolist(), strict=True)), wanted)
    every = read("--superseded")
    assert (len(every), int(every.live.sum())) == (50 + 4, 32)


def check_lines(stored: str, tmp_path: Path, form: str, step: str, time: str) -> None:
    path = tmp_path / "x.jsonl"
    export(stored, "a run", "--format", form, "--out", path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    same({row[step]: float(row[TRAIN]) for row in rows if TRAIN in row}, LIVE)
    same({row[step]: float(row[HELDOUT]) for row in rows if HELDOUT in row}, LIVE_HELDOUT)
    assert rows[0][time] == 1001.5
    assert rows[0][TRAIN] == "NaN", "strict JSON"
    assert ("tokens" in rows[0]) == (form == "jsonl")
    with open_log(path) as log:  # what is taken out can be brought in again
        found = {row.step: row.value for row in log.rows if row.metric == TRAIN}
    same(found, LIVE)


def check_tensorboard(stored: str, tmp_path: Path) -> None:
    export(stored, "a run", "--format", "tensorboard", "--out", tmp_path / "tb")
    (path,) = (tmp_path / "tb").iterdir()
    assert "tfevents" in path.name
    with open_log(path) as log:
        rows = list(log.rows)
        assert log.format == "tensorboard"
    with np.errstate(under="ignore"):
        rounded = {step: float(np.float32(value)) for step, value in LIVE.items()}
    same({row.step: row.value for row in rows if row.metric == TRAIN}, rounded)
    assert rows[0].time == 1001.5


def check_stdout(stored: str) -> None:
    result = export(stored, "a run", "--format", "csv", "--out", "-")
    assert result.stdout.splitlines()[0] == "metric,step,tokens,value"
    assert len(result.stdout.splitlines()) == 33


def test_what_is_refused(store: Store, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store.start("empty")
    store.start("twice", stage="a")
    store.start("twice", stage="b")
    for arguments, message in (
        (["nothing"], "There is no run nothing"),
        (["empty"], "has no points"),
        (["twice"], "stands for 2 runs"),
        (["twice", "--stage", "c"], "There is no run twice of c"),
        (["a run", "--format", "jsonl", "--superseded"], "--superseded goes with csv, parquet, arrow"),
        (["a run", "--out", str(tmp_path / "none" / "x.csv")], "cannot be written"),
        (["a run", "--out", str(tmp_path / "file" / "x.csv")], "cannot be written"),
        (["a run", "--format", "tensorboard", "--out", "-"], "TensorBoard reads a folder"),
    ):
        result = CliRunner().invoke(app, ["export", *arguments, "--database-url", database_url])
        assert result.exit_code == 2, arguments
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
    assert list(tmp_path.glob("**/*.new")) == []


def test_a_run_of_many_metrics_as_arrow() -> None:
    """A run may have 2,000 metrics, and all may be asked for at once."""
    points = Points(np.arange(2), np.arange(2.0), np.array([0.5, 1.5]), np.zeros(2, np.int64), np.ones(2, np.bool_))
    table = exact_table({f"metric {place}": points for place in range(2000)}, None)
    assert table.num_rows == 4000
    assert table.column("metric")[-1].as_py() == "metric 1999"
