"""How fast points go in and come back, and what they weigh: `python -m benchmarks store [--quick] [--only TABLE]`.

A real server process, clients in processes of their own on raw keep-alive sockets, every answer after its commit. The
floor beside it is what raw sqlite3 does in the same run, one row a point. Numbers swing by a factor of two on a shared
machine: compare within one table.
"""

from __future__ import annotations

import argparse
import io
import sqlite3
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine, func, select, text

from benchmarks.store_server import METRICS, STEPS, cpu_seconds, get, ingest, postgresql, resident_mb, server
from service.database.engine import open_engine, reading, writing
from service.database.migrate import ensure_schema
from service.database.models import Chunk, Segment
from service.ingest.segments import ensure_project, ensure_run, run_uuid
from service.series.repository import SeriesRepository
from service.series.writer import write_points

AIM = "aim"
console = Console(width=130)


def raw_sqlite(folder: Path, points: int) -> float:
    """Points per second of sqlite3's executemany, one row a point, synchronous=FULL, a commit per 2,000 points."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE p (run INT, metric INT, step INT, value REAL, PRIMARY KEY (run, metric, step)) WITHOUT ROWID"
    )
    rng = np.random.default_rng(0)
    groups = [
        [(1, m, n * STEPS + s, v) for m in range(METRICS) for s, v in enumerate(rng.random(STEPS).tolist())]
        for n in range(points // (STEPS * METRICS))
    ]
    begun = time.perf_counter()
    for rows in groups:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO p VALUES (?,?,?,?)", rows)
        connection.execute("COMMIT")
    seconds = time.perf_counter() - begun
    connection.close()
    return points / seconds


def timed(action: Callable[[], Any], times: int = 5) -> tuple[float, float]:
    """The first time and the median of the others (or that one, if it is alone), in ms."""
    taken: list[float] = []
    for _ in range(times + 1):
        before = time.perf_counter()
        action()
        taken.append((time.perf_counter() - before) * 1000)
    return taken[0], float(np.median(taken[1:] or taken))


def fill(engine: Engine, name: str, steps: int, columns: dict[str, np.ndarray[Any, Any]]) -> int:
    """A run with whole series, written as imports are."""
    now = time.time()
    with writing(engine) as session:
        project = ensure_project(session, "bench", now)
        identity = run_uuid("bench", name, "stage1")
        run_id = ensure_run(
            session,
            project,
            identity,
            {"name": name, "stage": "stage1", "role": "reproduction", "token_offset": 0.0},
            now,
        )
        segment = Segment(
            uuid=uuid.uuid4(), run_id=run_id, kind="import", start_step=0, tokens_per_step=4_194_304, topology={},
            config={}, versions={}, sample_rows=1, started_at=now, digest=b"",
        )  # fmt: skip
        session.add(segment)
        session.flush()
        at = np.arange(1, steps + 1)
        write_points(session, run_id, segment.id, at, None, None, {key: (at, value) for key, value in columns.items()})
    return run_id


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    return made


def bench_ingest(databases: dict[str, str], folder: Path, quick: bool) -> None:
    scale = 1 if quick else 4
    floor = raw_sqlite(folder, 200_000 * scale)
    shown = table(
        f"Ingest over HTTP, {METRICS} metrics a step, committed before the answer",
        "",
        "points/s",
        "x floor",
        "p50 ms",
        "p99 ms",
        "server CPU us/point",
        AIM,
    )
    shown.add_row("raw sqlite3, a row a point, FULL (floor)", f"{floor:,.0f}", "1.0", "", "", "", "")
    for name, url in databases.items():
        with server(url) as (port, pid, _):
            ingest(port, 1, 20, STEPS)
            for clients, count, steps in ((1, 100 * scale, STEPS), (8, 50 * scale, STEPS), (8, 100 * scale, 1)):
                used = cpu_seconds(pid)
                speed, median, tail = ingest(port, clients, count, steps)
                used = (cpu_seconds(pid) - used) / (clients * count * steps * METRICS) * 1e6
                label = f"{name}, clients: {clients}, steps a request: {steps}"
                aim = ">= 1,500,000" if (clients, steps) == (8, STEPS) else ""
                shown.add_row(
                    label, f"{speed:,.0f}", f"{speed / floor:.1f}", f"{median:.2f}", f"{tail:.2f}", f"{used:.2f}", aim
                )
    console.print(shown)


def bench_reading(databases: dict[str, str], quick: bool) -> None:
    steps = 200_000 if quick else 1_400_000
    million = 100_000 if quick else 1_000_000
    shown = table("Reading back", "", "first ms", "then, median ms", AIM)
    rng = np.random.default_rng(1)
    noise = rng.normal(2.5, 0.03, (10, million)).astype(np.float32).astype(np.float64)
    for name, url in databases.items():
        engine = open_engine(url)
        ensure_schema(engine)
        long = rng.normal(2.5, 0.03, steps).astype(np.float32).astype(np.float64)
        run_id = fill(engine, "long", steps, {"train/ce_loss": long})
        fill(engine, "ten", million, {f"m{index}": row for index, row in enumerate(noise)})

        def exact(engine: Engine = engine, run_id: int = run_id) -> None:
            with reading(engine) as session:
                assert len(SeriesRepository(session).read(run_id, ["train/ce_loss"])["train/ce_loss"]) == steps

        def overview(engine: Engine = engine, run_id: int = run_id) -> None:
            with reading(engine) as session:
                SeriesRepository(session).overview(run_id, "train/ce_loss", points=1000)

        shown.add_row(f"{name}: {steps:,} steps into numpy", *(f"{ms:.1f}" for ms in timed(exact)), "")
        shown.add_row(f"{name}: their overview, 1,000 buckets", *(f"{ms:.1f}" for ms in timed(overview)), "")
        engine.dispose()
        with server(url) as (port, _, _):
            path = f"/runs/{run_uuid('bench', 'ten', 'stage1')}/series"
            get(port, f"{path}?metric=m0&from=1&to=10&format=arrow")  # imports Arrow on both sides

            def pandas(port: int = port, path: str = path) -> None:
                import pyarrow as pa

                frame = pa.ipc.open_stream(io.BytesIO(get(port, f"{path}?metric=m0&format=arrow"))).read_pandas()
                assert len(frame) == million

            pandas()
            first, then = timed(pandas)
            shown.add_row(
                f"{name}: {million:,} points into pandas, Arrow over HTTP", f"{first:.1f}", f"{then:.1f}", "<= 100"
            )
            query = "&".join(f"metric=m{index}" for index in range(10))

            def chart(points: int = 1000, address: str = f"{path}?{query}", port: int = port) -> None:
                get(port, f"{address}&points={points}")

            cold = [timed(partial(chart, points), 0)[0] for points in (1000, 999, 998, 997, 996)]
            warm = timed(chart)[1]
            shown.add_row(
                f"{name}: chart of ten series x {million:,}, cold",
                f"{cold[0]:.1f}",
                f"{np.median(cold[1:]):.1f}",
                "<= 100",
            )
            shown.add_row(f"{name}: the same chart again", "", f"{warm:.1f}", "<= 10")
    console.print(shown)


def bench_bytes(databases: dict[str, str], folder: Path, quick: bool) -> None:
    """All that the database file, or the table with its indices and TOAST, grew by for runs written at once."""
    steps = 50_000 if quick else 400_000
    rng = np.random.default_rng(2)
    at = np.arange(steps)
    smooth = 2.0 + 9.0 / (1 + at / 500) ** 0.4
    mixed = {f"train/loss_{n}": smooth + rng.normal(0, 0.03, steps) for n in range(4)}
    mixed |= {f"optim/grad_norm_{n}": np.exp(rng.normal(-1, 0.1, steps)) for n in range(3)}
    mixed["optim/learning_rate"] = 3e-4 * np.cos(at / steps)
    mixed["throughput/step_seconds"] = 1 + rng.gamma(2, 0.01, steps)
    mixed["optim/skipped"] = (rng.random(steps) < 1e-3) * 1.0
    kinds = {
        "mix of ten metrics, float32 values": {k: v.astype(np.float32).astype(np.float64) for k, v in mixed.items()},
        "loss with noise 0.03, float32 values": {
            "loss": rng.normal(2.5, 0.03, steps).astype(np.float32).astype(np.float64)
        },
        "loss with noise 0.03, true float64": {"loss": rng.normal(2.5, 0.03, steps)},
    }
    shown = table("Bytes per sealed point, everything on disk counted", "", "in the columns", "on disk", AIM)
    for name, url in databases.items():
        for index, (kind, columns) in enumerate(kinds.items()):
            engine = open_engine(url if name != "SQLite" else f"sqlite:///{folder / f'bytes{index}.db'}")
            ensure_schema(engine)
            before = on_disk(engine)
            run_id = fill(engine, f"bytes-{index}", steps, columns)
            after = on_disk(engine)
            with reading(engine) as session:
                packed, points = session.execute(
                    select(
                        func.sum(func.length(Chunk.steps) + func.length(Chunk.values) + func.length(Chunk.summary)),
                        func.sum(Chunk.points),
                    ).where(Chunk.run_id == run_id)
                ).one()
            aim = "<= 2.5" if index == 0 else ""
            shown.add_row(
                f"{name}: {kind}", f"{int(packed) / int(points):.2f}", f"{(after - before) / int(points):.2f}", aim
            )
            engine.dispose()
    console.print(shown)


def on_disk(engine: Engine) -> int:
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.exec_driver_sql("BEGIN")
        return Path(engine.url.database or "").stat().st_size
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_total_relation_size('chunk')")).scalar_one())


def bench_start(databases: dict[str, str]) -> None:
    shown = table("Start and idle", "", "first answer s", "idle MB", AIM)
    for name, url in databases.items():
        with server(url) as (port, pid, seconds):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30).read()  # the pages are loaded too
            time.sleep(1.0)
            shown.add_row(name, f"{seconds:.2f}", f"{resident_mb(pid):.0f}", "<= 3 s, <= 200 MB")
    console.print(shown)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks and print their tables."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="benchmarks store", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the work")
    parser.add_argument("--no-postgresql", action="store_true")
    parser.add_argument("--only", choices=["ingest", "reading", "bytes", "start"])
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pacenote-bench-") as name:
        folder = Path(name)
        with postgresql(folder) as pg:
            databases = {"SQLite": f"sqlite:///{folder / 'bench.db'}"}
            if pg is not None and not options.no_postgresql:
                databases["PostgreSQL"] = pg
            if options.only in (None, "ingest"):
                bench_ingest(databases, folder, options.quick)
            if options.only in (None, "reading"):
                bench_reading(databases, options.quick)
            if options.only in (None, "bytes"):
                bench_bytes(databases, folder, options.quick)
            if options.only in (None, "start"):
                bench_start(databases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
