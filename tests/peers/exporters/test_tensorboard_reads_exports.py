"""TensorBoard's own reader sees in an exported folder what was stored, rounded to 32 bits."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import numpy as np
from sqlalchemy import select
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from service.cli.main import app
from service.database.engine import open_engine, writing
from service.database.migrate import ensure_schema
from service.database.models import Segment
from service.ingest.requests import Put
from service.ingest.segments import put_segment
from service.ingest.wire import SegmentBody
from service.series.writer import write_points

STEPS = np.arange(1, 20_001)
ODD = [np.nan, np.inf, -np.inf, -0.0, 1e300, 1e-300]


def test_every_point_with_its_step_and_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'pacenote.db'}"
    engine = open_engine(url)
    ensure_schema(engine)
    body = SegmentBody(process=0, seq=0, sent_at=1.0, project="p", run="r", stage="stage1", started_at=1.0)
    segment = uuid4()
    values = np.sin(STEPS)
    values[: len(ODD)] = ODD
    sparse = STEPS[STEPS % 1000 == 0]
    with writing(engine) as session:
        put_segment(session, Put(segment, body, segment.bytes, 1.0, 1.0))
        row = session.scalars(select(Segment)).one()
        columns = {"train/ce_loss": (STEPS, values), "heldout/ü/ce_loss": (sparse, sparse / 3)}
        write_points(session, row.run_id, row.id, STEPS, 1e9 + STEPS * 0.5, None, columns)
    engine.dispose()
    out = tmp_path / "out"
    arguments = ["export", "p/r", "--format", "tensorboard", "--out", str(out), "--database-url", url]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    read = EventAccumulator(str(out), size_guidance={"scalars": 0})
    read.Reload()
    assert sorted(read.Tags()["scalars"]) == ["heldout/ü/ce_loss", "train/ce_loss"]
    train, heldout = read.Scalars("train/ce_loss"), read.Scalars("heldout/ü/ce_loss")
    np.testing.assert_array_equal([event.step for event in train], STEPS)
    np.testing.assert_array_equal([event.wall_time for event in train], 1e9 + STEPS * 0.5)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(np.array([event.value for event in train], np.float32), values.astype(np.float32))
    np.testing.assert_array_equal([event.step for event in heldout], sparse)
