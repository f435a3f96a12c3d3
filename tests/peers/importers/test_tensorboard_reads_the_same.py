"""Event files, beside TensorBoard's own reader."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peer_reading import Values, read_back, spelled

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

GOLDEN = Path(__file__).parents[2] / "golden" / "logs"
REAL = Path(__file__).parents[4] / "shared" / "reallogs" / "f_formats" / "tfevents_reencoded"
FILES = [
    GOLDEN / "events.out.tfevents.1733356800.reencoded",
    GOLDEN / "peers" / "events.out.tfevents.tensorboard",
    *sorted(path for path in REAL.rglob("*tfevents*") if path.is_file()),
]


def by_tensorboard(path: Path) -> Values:
    loaded = accumulator.EventAccumulator(
        str(path), size_guidance={"scalars": 0, "tensors": 0}, purge_orphaned_data=False
    )
    loaded.Reload()
    tags = loaded.Tags()
    found: dict[str, list[tuple[int, float]]] = {
        tag: [(one.step, one.value) for one in loaded.Scalars(tag)] for tag in tags["scalars"]
    }
    make: Any = pytest.importorskip("tensorboard.util.tensor_util").make_ndarray
    for tag in tags["tensors"]:
        plugin = loaded.SummaryMetadata(tag).plugin_data.plugin_name
        if plugin == "scalars":
            tensors = [(one.step, make(one.tensor_proto).item()) for one in loaded.Tensors(tag)]
            found.setdefault(tag, []).extend(tensors)
    return spelled({"": found})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[-40:])
def test_files_there_are(path: Path, tmp_path: Path) -> None:
    assert read_back(path, tmp_path) == by_tensorboard(path)


def test_what_tensorboardx_writes(tmp_path: Path) -> None:
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(tmp_path / "x"))
    for step in range(50):
        writer.add_scalar("train/loss", 3 - step / 50, step)
        writer.add_scalar("odd", [math.nan, math.inf, -math.inf, 5e-324, -0.0][step % 5], step)
        writer.add_histogram("weights", np.arange(5), step)
    writer.add_text("note", "hello", 3)
    writer.close()
    (path,) = (tmp_path / "x").iterdir()
    found = read_back(path, tmp_path)
    assert found == by_tensorboard(path)
    assert len(found[""]["odd"]) == 50


def test_tensors_of_every_type(tmp_path: Path) -> None:
    """As TensorFlow 2 and the clu package write scalars."""
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    summary_pb2 = pytest.importorskip("tensorboard.compat.proto.summary_pb2")
    metadata = pytest.importorskip("tensorboard.plugins.scalar.metadata").create_summary_metadata("", "")
    writer_of = pytest.importorskip("tensorboard.summary.writer.event_file_writer").EventFileWriter
    make = pytest.importorskip("tensorboard.util.tensor_util").make_tensor_proto
    writer = writer_of(str(tmp_path / "t"))
    for step, dtype in enumerate([np.float32, np.float64, np.int32, np.int64, np.float16, np.float32], 1):
        number = np.array(-3 if np.dtype(dtype).kind == "i" else -3.25, dtype)
        made = summary_pb2.Summary()
        made.value.add(tag=f"as/{np.dtype(dtype).name}", metadata=metadata, tensor=make(number))
        writer.add_event(event_pb2.Event(wall_time=1.7e9 + step, step=step, summary=made))
    writer.close()
    (path,) = (tmp_path / "t").iterdir()
    found = read_back(path, tmp_path)
    assert found == by_tensorboard(path)
    assert set(found[""]) == {"as/float32", "as/float64", "as/int32", "as/int64", "as/float16"}
