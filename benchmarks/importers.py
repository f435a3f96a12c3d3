"""How fast logs are imported, and in how much memory: `python -m benchmarks.importers [--points N] [--large]`.

Each file holds the same numbers, drawn with a fixed seed: ten metrics a step. Each is imported in a process of its own,
so that its peak memory is its own. `--large` also imports files of 1 and 5 GB: peak memory must not grow with them.
Where trackio and MLflow are installed (the environment of `make test-peers`), they stand beside in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import itertools
import json
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

METRICS = 10
MOST_MEMORY = 300.0  # MiB, whatever the size
TARGET = 1_000_000  # points a second, from CSV and Parquet
FASTER = 3.0  # than each peer
MLFLOW_POINTS = 100_000


def write_csv(path: Path, rows: int) -> None:
    """A wide table."""
    rng = np.random.default_rng(1)
    with path.open("w") as file:
        file.write("step,loss," + ",".join(f"metric_{place}" for place in range(1, METRICS)) + "\n")
        for start in range(1, rows + 1, 100_000):
            steps = np.arange(start, min(start + 100_000, rows + 1))
            values = rng.normal(3, 0.03, (len(steps), METRICS))
            np.savetxt(file, np.column_stack([steps, values]), "%d" + ",%.7g" * METRICS)


def write_parquet(path: Path, rows: int) -> None:
    """The same, from the table."""
    pq, pa_csv = import_module("pyarrow.parquet"), import_module("pyarrow.csv")
    source = path.with_suffix(".csv")
    write_csv(source, rows)
    pq.write_table(pa_csv.read_csv(source), path)


def write_trackio_parquet(path: Path, rows: int) -> None:
    """The same as Trackio writes a project: with the columns of its table."""
    pa, pq, pa_csv = (import_module(name) for name in ("pyarrow", "pyarrow.parquet", "pyarrow.csv"))
    source = path.with_suffix(".csv")
    write_csv(source, rows)
    table = pa_csv.read_csv(source)
    stamps = (np.datetime64("2026-01-01T00:00:00") + np.arange(rows)).astype(str)
    own = {"id": np.arange(rows), "run_id": ["run"] * rows, "timestamp": stamps, "run_name": ["run"] * rows}
    names = [*own, *table.column_names]
    pq.write_table(pa.table([*(pa.array(column) for column in own.values()), *table.columns], names), path)


def write_json_lines(path: Path, rows: int) -> None:
    """One object a step."""
    rng = np.random.default_rng(1)
    with path.open("w") as file:
        for step in range(1, rows + 1):
            values = rng.normal(3, 0.03, METRICS).round(6).tolist()
            names = ["loss", *(f"metric_{place}" for place in range(1, METRICS))]
            file.write(json.dumps({"_step": step} | dict(zip(names, values, strict=True))) + "\n")


def write_printed(path: Path, rows: int) -> None:
    """Megatron's lines."""
    rng = np.random.default_rng(1)
    with path.open("w") as file:
        for step, loss in enumerate(rng.normal(3, 0.03, rows), 1):
            pairs = " | ".join(f"metric {place}: {loss:.6E}" for place in range(1, METRICS))
            file.write(f" iteration {step:8d}/ {rows:8d} | lm loss: {loss:.6E} | {pairs} |\n")


def write_events(path: Path, rows: int) -> None:
    """TensorBoard's records, one value each."""
    from service.importers.crc32c import masked_crcs

    rng = np.random.default_rng(1)
    head, body, records = b"\x09" + np.float64(1.7e9).tobytes(), b"", [b""]
    for step, loss in enumerate(rng.normal(3, 0.03, rows * METRICS).astype(np.float32), METRICS):
        tag = b"loss" if step % METRICS == 0 else b"metric_%d" % (step % METRICS)
        value = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + loss.tobytes()
        body = b"\x0a" + bytes([len(value)]) + value
        records.append(head + b"\x10" + _varint(step // METRICS) + b"\x2a" + bytes([len(body)]) + body)
    sizes = [len(record).to_bytes(8, "little") for record in records]
    sums, content = masked_crcs(sizes), masked_crcs(records)
    with path.open("wb") as file:
        for size, first, record, second in zip(sizes, sums, records, content, strict=True):
            file.write(size + first.tobytes() + record + second.tobytes())


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def write_large_csv(path: Path, size: int) -> None:
    """About `size` bytes of a wide table with values of 17 digits, as trackers export them."""
    pa, pa_csv = import_module("pyarrow"), import_module("pyarrow.csv")
    names = ["loss", *(f"metric_{place}" for place in range(1, METRICS))]
    with path.open("wb") as file:
        for start, values in _large():
            table = {"step": np.arange(start, start + len(values))} | dict(zip(names, values.T, strict=True))
            pa_csv.write_csv(pa.table(table), file, pa_csv.WriteOptions(include_header=start == 1))
            if file.tell() >= size:
                return


def write_large_json_lines(path: Path, size: int) -> None:
    """The same as objects."""
    form = '{"_step": %d, "loss": %r' + "".join(f', "metric_{place}": %r' for place in range(1, METRICS)) + "}\n"
    with path.open("w") as file:
        for start, values in _large():
            file.write("".join([form % (step, *row) for step, row in enumerate(values.tolist(), start)]))
            if file.tell() >= size:
                return


def _large() -> Iterator[tuple[int, Any]]:
    rng = np.random.default_rng(1)
    for start in itertools.count(1, 50_000):
        yield start, rng.normal(3, 0.03, (50_000, METRICS))


WRITERS: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "csv": ("log.csv", write_csv),
    "parquet": ("log.parquet", write_parquet),
    "trackio's": ("bench.parquet", write_trackio_parquet),
    "json lines": ("log.jsonl", write_json_lines),
    "printed": ("log.out", write_printed),
    "tensorboard": ("events.out.tfevents.1", write_events),
}


def run_one(path: Path) -> dict[str, Any]:
    """Import one file into a fresh database, in this process: seconds, points, peak memory."""
    from service.database.engine import open_engine
    from service.database.migrate import ensure_schema
    from service.importers.folders import find
    from service.importers.job import Options, look, store

    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(f"sqlite:///{folder}/pacenote.db")
        ensure_schema(engine)
        options = Options("bench", tokens_per_step=1)
        began = time.perf_counter()
        (group,) = find(path).groups
        preview = look(group, options)
        looked = time.perf_counter()
        report = store(engine, preview, options)
        ended = time.perf_counter()
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    assert report.read == report.stored
    times = {"look": looked - began, "store": ended - looked}
    return {"points": report.read, **times, "mib": peak_mib(), "bytes": size}


def peak_mib() -> float:
    """This process's peak memory. Linux hands a parent's on in ru_maxrss, but not in VmHWM."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def trackio_csv(path: Path) -> float:
    """Points a second of trackio's own CSV importer, on the same file."""
    return _by_trackio(path, "import_csv")


def trackio_events(path: Path) -> float:
    """Points a second of trackio's own importer of event files, on the same file."""
    return _by_trackio(path.parent, "import_tf_events")


def _by_trackio(path: Path, importer: str) -> float:
    with _trackio_folder() as folder:
        trackio: Any = import_module("trackio")
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            getattr(trackio, importer)(path, "bench", name="run", force=True)
        seconds = time.perf_counter() - began
        return _stored_by_trackio(folder) / seconds


@contextlib.contextmanager
def _trackio_folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        import_module("trackio")
        for name in ("trackio.sqlite_storage", "trackio.utils"):  # each has its copy of where databases are
            module: Any = import_module(name)
            module.TRACKIO_DIR = Path(folder)
        yield Path(folder)


def _stored_by_trackio(folder: Path) -> int:
    (stored,) = folder.glob("*.db")
    with contextlib.closing(sqlite3.connect(stored)) as database:
        return sum(len(json.loads(text)) for (text,) in database.execute("SELECT metrics FROM metrics"))


def trackio_parquet(path: Path) -> float:
    """Points a second of Trackio's reading of its own Parquet file into its database."""
    with _trackio_folder() as folder:
        shutil.copy(path, folder)
        storage = import_module("trackio.sqlite_storage").SQLiteStorage
        began = time.perf_counter()
        storage.import_from_parquet()
        seconds = time.perf_counter() - began
        return _stored_by_trackio(folder) / seconds


def mlflow_batches(path: Path) -> float:
    """Points a second of MLflow's way in for many values: batches of 1,000 into its SQLite store, from the same table.

    MLflow has no importer of files; the table is read before its time begins, and MLFLOW_POINTS of it are enough.
    """
    mlflow: Any = import_module("mlflow")
    table: Any = import_module("pyarrow.csv").read_csv(path).slice(0, MLFLOW_POINTS // METRICS).to_pydict()
    steps = table.pop("step")
    metrics = [
        mlflow.entities.Metric(name, value, 1_700_000_000_000, step)
        for name, values in table.items()
        for step, value in zip(steps, values, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
        run = client.create_run(client.create_experiment("bench")).info.run_id
        began = time.perf_counter()
        for start in range(0, len(metrics), 1000):
            client.log_batch(run, metrics=metrics[start : start + 1000])
        return len(metrics) / (time.perf_counter() - began)


# What stands beside a format, where it is installed: package, what it is, points a second on the same file.
PEERS: dict[str, list[tuple[str, str, Callable[[Path], float]]]] = {
    "csv": [
        ("trackio", "trackio import csv", trackio_csv),
        ("mlflow", "MLflow's log_batch", mlflow_batches),
    ],
    "trackio's": [("trackio", "Trackio's own reading of it", trackio_parquet)],
    "tensorboard": [("trackio", "trackio import tf_events", trackio_events)],
}


def measured(path: Path) -> dict[str, Any]:
    """`run_one` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.importers", "--one", str(path)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per format, with peers below; 1 if CSV, Parquet or the distance to a peer is below its target."""
    parser = argparse.ArgumentParser(prog="benchmarks.importers", description=__doc__)
    parser.add_argument("--points", type=int, default=2_000_000)
    parser.add_argument("--large", action="store_true", help="also files of --gigabytes, for the memory they take")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0, 5.0])
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        print(json.dumps(run_one(given.one)))
        return 0
    slow = False
    with tempfile.TemporaryDirectory() as folder:
        for name, (file, write) in WRITERS.items():
            path = Path(folder) / file
            write(path, given.points // METRICS)
            rate = _print(name, path, measured(path))
            slow |= name in ("csv", "parquet", "trackio's") and rate < TARGET
            for package, title, peer in PEERS.get(name, []):
                if importlib.util.find_spec(package) is not None:
                    theirs = peer(path)
                    print(f"{'':12} {title}: {theirs:,.0f} points/s; this is {rate / theirs:,.1f} times as fast")
                    slow |= rate < FASTER * theirs
            path.unlink()
    return int(slow) or (large(given.gigabytes) if given.large else 0)


def large(gigabytes: Sequence[float]) -> int:
    """Peak memory for files of these sizes; 1 if one of them takes more than MOST_MEMORY."""
    most = 0.0
    for kind, write in (("large.csv", write_large_csv), ("large.jsonl", write_large_json_lines)):
        for size in gigabytes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / kind
                write(path, int(size * 1000**3))
                found = measured(path)
                _print(kind, path, found)
                most = max(most, found["mib"])
    return int(most > MOST_MEMORY)


def _print(name: str, path: Path, found: dict[str, Any]) -> float:
    seconds = found["look"] + found["store"]
    rate = found["points"] / seconds
    print(
        f"{name:12} {found['points']:>13,} points  {path.stat().st_size / 1e6:8.1f} MB  look {found['look']:7.2f} s  "
        f"store {found['store']:7.2f} s  {rate:>11,.0f} points/s  peak {found['mib']:6.0f} MiB  "
        f"stored in {found['bytes'] / found['points']:5.1f} B/point"
    )
    return rate


if __name__ == "__main__":
    sys.exit(main())
