"""Runs of many chunks and many metrics: whole, read back by independent readers, and never half a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sqlalchemy import Engine, select
from typer.testing import CliRunner

from service.cli.main import app
from service.database.engine import open_engine, writing
from service.database.migrate import ensure_schema
from service.database.models import Segment
from service.exporters import run_series
from service.ingest.requests import Put
from service.ingest.segments import put_segment
from service.ingest.wire import SegmentBody
from service.series.writer import write_points
from tests.cli.serving import PACENOTE, environment

STEPS = 20_000
SPARSE = 1000


def begin(engine: Engine, start_step: int, started_at: float) -> tuple[int, int]:
    """(run, segment) of a new start of the trainer."""
    body = SegmentBody(
        process=0, seq=0, sent_at=1.0, project="p", run="long", stage="stage1", started_at=started_at,
        kind="trainer", start_step=start_step, tokens_per_step=10,
    )  # fmt: skip
    segment = uuid4()
    with writing(engine) as session:
        put_segment(session, Put(segment, body, segment.bytes, started_at, 1.0))
        row = session.scalars(select(Segment).where(Segment.uuid == segment)).one()
        return row.run_id, row.id


def fill(engine: Engine, place: tuple[int, int], names: list[str], first: int, last: int, shift: float) -> None:
    steps = np.arange(first, last + 1)
    columns = {name: (steps, np.sin(steps * (n + 1)) + shift) for n, name in enumerate(names)}
    sparse = steps[steps % SPARSE == 0]
    columns["heldout/c4/ce_loss"] = (sparse, sparse / 7 + shift)
    with writing(engine) as session:
        write_points(session, *place, steps, steps * 2.0, None, columns)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of three metrics that went back from step 20,000 to step 9,000, and on to 12,000."""
    url = f"sqlite:///{tmp_path_factory.mktemp('long') / 'pacenote.db'}"
    engine = open_engine(url)
    ensure_schema(engine)
    fill(engine, begin(engine, 0, 1.0), ["a", "b"], 1, STEPS, 0.0)
    fill(engine, begin(engine, 9000, 2.0), ["a", "b"], 9001, 12_000, 100.0)
    engine.dispose()
    return url


@pytest.fixture(autouse=True, params=["as shipped", "small pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "small pieces":
        monkeypatch.setattr(run_series, "CHUNKS", 1)
        monkeypatch.setattr(run_series, "METRICS", 1)
        monkeypatch.setattr(run_series, "PIECE", 777)


def export(url: str, out: Path, *arguments: str) -> Path:
    result = CliRunner().invoke(app, ["export", "p/long", "--out", str(out), *arguments, "--database-url", url])
    assert result.exit_code == 0, result.output
    return out


def wanted() -> dict[str, pd.Series]:
    steps = np.arange(1, 12_001)
    late = np.where(steps > 9000, 100.0, 0.0)
    found = {name: pd.Series(np.sin(steps * (n + 1)) + late, index=steps) for n, name in enumerate(("a", "b"))}
    sparse = steps[steps % SPARSE == 0]
    return found | {"heldout/c4/ce_loss": pd.Series(sparse / 7 + np.where(sparse > 9000, 100.0, 0.0), index=sparse)}


@pytest.mark.parametrize("format_", ["csv", "parquet", "arrow"])
def test_tables_are_read_by_pandas(url: str, tmp_path: Path, format_: str) -> None:
    path = export(url, tmp_path / "out", "--format", format_)
    if format_ == "csv":
        frame = pd.read_csv(path)
    elif format_ == "parquet":
        frame = pd.read_parquet(path)
    else:
        with pa.OSFile(str(path)) as file:
            frame = pa.ipc.open_stream(file).read_pandas()
    assert set(frame["metric"]) == set(wanted())
    for name, series in wanted().items():
        own = frame[frame["metric"] == name]
        np.testing.assert_array_equal(own["step"], series.index)
        np.testing.assert_array_equal(own["value"], series)
        np.testing.assert_array_equal(own["tokens"], series.index * 10.0)


def test_superseded_points_are_all_there(url: str, tmp_path: Path) -> None:
    frame = pd.read_parquet(export(url, tmp_path / "out", "--format", "parquet", "--superseded"))
    assert len(frame) == 2 * (STEPS + 3000) + STEPS // SPARSE + 3
    assert int(frame["live"].sum()) == sum(len(series) for series in wanted().values())
    assert frame["segment"].nunique() == 2
    old = frame[(frame["metric"] == "a") & ~frame["live"]]
    np.testing.assert_array_equal(old["value"], np.sin(np.arange(9001, STEPS + 1)))


def test_rows_have_every_metric_of_their_step_once(url: str, tmp_path: Path) -> None:
    path = export(url, tmp_path / "out", "--format", "wandb")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["_step"] for row in rows] == list(range(1, 12_001))
    assert all(row["_timestamp"] == 2.0 * row["_step"] for row in rows)
    for name, series in wanted().items():
        assert {row["_step"]: row[name] for row in rows if name in row} == series.to_dict()


def test_killed_in_the_middle_there_is_no_file(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("what was there before")
    arguments = ["export", "p/long", "--format", "jsonl", "--out", str(out), "--database-url", url]
    process = subprocess.Popen([*PACENOTE, *arguments], env=environment())
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size for path in tmp_path.glob(".out.jsonl.*")):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    assert out.read_text() == "what was there before"
    export(url, out, "--format", "jsonl")
    assert len(out.read_text().splitlines()) == 12_000
    assert list(tmp_path.iterdir()) == [out], "what the killed one left is gone"
