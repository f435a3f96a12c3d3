"""How fast logs are imported, and in how much memory: `python -m benchmarks.importers [--points N] [--large]`.

Each file holds the same numbers, drawn with a fixed seed: ten metrics a step. Each is imported in a process of its own,
so that its peak memory is its own. `--large` reads a CSV file of 5 GB besides. Where trackio is installed, its own CSV
importer is run on the same file.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

METRICS = 10
LARGE_BYTES = 5 * 1000**3
TARGET = 1_000_000  # points a second, from CSV and Parquet


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


WRITERS: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "csv": ("log.csv", write_csv),
    "parquet": ("log.parquet", write_parquet),
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


def run_trackio(path: Path) -> float:
    """Seconds of trackio's own importer."""
    trackio: Any = import_module("trackio")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRACKIO_DIR"] = folder
        began = time.perf_counter()
        trackio.import_csv(str(path), project="bench", name="run", force=True)
        return time.perf_counter() - began


def measured(path: Path) -> dict[str, Any]:
    """`run_one` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.importers", "--one", str(path)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per format; 1 if CSV or Parquet is slower than the target."""
    parser = argparse.ArgumentParser(prog="benchmarks.importers", description=__doc__)
    parser.add_argument("--points", type=int, default=2_000_000)
    parser.add_argument("--large", action="store_true")
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
            slow |= name in ("csv", "parquet") and rate < TARGET
            if name == "csv" and importlib.util.find_spec("trackio") is not None:
                print(f"{'':12} trackio's own importer of the same file: {run_trackio(path):.2f} s")
            path.unlink()
        if given.large:
            path = Path(folder) / "large.csv"
            write_csv(path, 100_000)
            write_csv(path, LARGE_BYTES * 100_000 // path.stat().st_size)
            _print("5 GB of CSV", path, measured(path))
    return int(slow)


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
