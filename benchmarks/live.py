"""`python -m benchmarks live`: many live runs against a real service over HTTP, faults in some of them, alerts to a
real receiver: how long from the sending of the batch that tells to the receiver, and what judging costs meanwhile.

Each run sends one step with 20 scalars a second, and its row fingerprints every fifth second. A fault is one request
that decides at once: a loss that is not a number, rows that were read before, or 4,000 steps of drifted loss (as a hook
that catches up sends them; heavy for the others, too).
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import tempfile
import threading
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine

from benchmarks import live_cost
from benchmarks.live_world import (
    ROWS,
    SAMPLE,
    TRAIN,
    Columns,
    Curves,
    body,
    install,
    run_of,
    segment_of,
)  # fmt: skip
from benchmarks.store_server import Socket, cpu_seconds, http, postgresql, resident_mb, server
from service.database.engine import open_engine, reading, writing
from service.database.migrate import ensure_schema
from service.database.models import Channel
from service.worker.loop import lag

FAULTS = ("not a number", "rows read before", "drift of 0.25 nats, 4,000 steps at once")
CAUGHT_UP = 4_000
ROWS_EVERY = 5  # seconds between two sendings of a run's rows
# No fault shows in the first fifth of the time, in which every run must have sent rows that can then be repeated.
LEAST_SECONDS = 5 * ROWS_EVERY
REPEATED = 8  # sampled rows in the request that repeats them
MOST_P95, SENDERS = 1.5, 4
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass(slots=True)
class Live:
    """One run that sends: where it stands, and which fault it shows at which second."""

    name: str
    segment: str
    step: int
    seed: int
    fault: str = ""
    at: int = -1
    seq: int = 0
    rows_seq: int = 0
    hashes: list[int] = field(default_factory=list[int])
    seen_from: int = 0


class Arrivals:
    """What the receiver got: the first alert of each run, with the time of its arrival."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        self.count = 0
        self._lock = threading.Lock()

    def take(self, message: Any) -> None:
        with self._lock:
            self.count += 1
            self.first.setdefault(str(message["data"]["run"]["name"]), time.time())


@contextmanager
def receiver() -> Generator[tuple[str, Arrivals]]:
    """A webhook receiver on loopback."""
    arrivals = Arrivals()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            arrivals.take(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    here = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=here.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{here.server_address[1]}/", arrivals
    finally:
        here.shutdown()
        here.server_close()


def world(engine: Engine, count: int, history: int, seconds: int, faulty: int, address: str) -> list[Live]:
    """The reference, the runs with their history, and a channel to the receiver."""
    tasks = install(engine, history + 2 * CAUGHT_UP + seconds)
    runs: list[Live] = []
    for i in range(count):
        name = f"run-{i:03d}"
        run_id = run_of(engine, name, history, tasks, i + 1)
        with reading(engine) as session:
            runs.append(Live(name, str(segment_of(session, run_id).uuid), history, i + 1, seen_from=history + 1))
    rng = np.random.default_rng(0)
    for k, i in enumerate(rng.permutation(count)[:faulty].tolist()):
        runs[i].fault, runs[i].at = FAULTS[k % len(FAULTS)], int(rng.integers(seconds // 5, seconds - 3))
    with writing(engine) as session:
        channel = Channel(uuid=uuid.uuid4(), name="receiver", kind="webhook", url=address, enabled=True, secret=SECRET)
        channel.created_at = 0.0
        session.add(channel)
    return runs


def requests_of(run: Live, second: int, tasks: tuple[str, ...] = ()) -> list[bytes]:
    """What a run sends in a second, and goes on."""
    curves = Curves(run.seed, tasks)
    fault = run.fault if run.at == second else ""
    drifts = fault == FAULTS[2]
    count = CAUGHT_UP if drifts else 1
    first = run.step + 1
    columns: Columns = curves.between(first, run.step + count, -0.25 if drifts else 0.0)
    sent = body(first, columns, count)
    if fault == FAULTS[0]:
        sent["metrics"][TRAIN] = ["NaN"]
    run.step += count
    common = {"process": 0, "sent_at": time.time()}
    made = [http("POST", f"/segments/{run.segment}/batches", sent | common | {"seq": run.seq})]
    run.seq += 1
    rng = np.random.default_rng([run.seed, first, 1])
    repeats = fault == FAULTS[1]
    if repeats or second % ROWS_EVERY == run.seed % ROWS_EVERY:
        fresh = rng.integers(0, 2**54, REPEATED, np.uint64) * np.uint64(SAMPLE)
        hashes = run.hashes[:REPEATED] if repeats else [int(h) for h in fresh[:3]]
        run.hashes += hashes
        told = {
            "kind": "rows", "host": 0, "sample": SAMPLE, "steps": [run.step] * len(hashes),
            "hashes": [f"{h:016x}" for h in hashes], "seen": [[run.seen_from, run.step, ROWS]], "seq": run.rows_seq,
        }  # fmt: skip
        made.append(http("POST", f"/segments/{run.segment}/fingerprints", told | common))
        run.rows_seq, run.seen_from = run.rows_seq + 1, run.step + 1
    return made


def send(port: int, jobs: queue.SimpleQueue[tuple[Live, int] | None], told: dict[str, tuple[str, float]]) -> None:
    """Send what is due, one request after another on one connection; note when a fault's request was on its way."""
    connection = Socket(port)
    while (job := jobs.get()) is not None:
        run, second = job
        made = requests_of(run, second)
        if run.at == second:
            told[run.name] = (run.fault, time.time())
        for request in made:
            connection.send(request)


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one measurement: latencies in seconds by fault, judging lags in seconds, shares of one core, memory in MB."""

    latencies: dict[str, list[float]]
    missed: int
    others: int
    lags: list[float]
    behind: float
    service: float
    memory: float


def measure(engine: Engine, port: int, pid: int, runs: Sequence[Live], seconds: int, arrivals: Arrivals) -> Measured:
    """Let the runs send for so long, each at its own moment of a second."""
    told: dict[str, tuple[str, float]] = {}
    jobs = [queue.SimpleQueue[tuple[Live, int] | None]() for _ in range(SENDERS)]
    senders = [threading.Thread(target=send, args=(port, own, told), daemon=True) for own in jobs]
    for sender in senders:
        sender.start()
    lags: list[float] = []
    behind, begun, used = 0.0, time.time(), cpu_seconds(pid)
    for second in range(seconds):
        for i, run in enumerate(runs):
            due = begun + second + i / len(runs)
            wait = due - time.time()
            if wait > 0.002:
                time.sleep(wait)
            behind = max(behind, -wait)
            jobs[i % SENDERS].put((run, second))
        if second % 2:
            with reading(engine) as session:
                lags.append(lag(session))
    spent = (cpu_seconds(pid) - used) / (time.time() - begun)
    for own in jobs:
        own.put(None)
    for sender in senders:
        sender.join(30.0)
    deadline = time.time() + 15.0
    while time.time() < deadline and any(name not in arrivals.first for name in told):
        time.sleep(0.05)
    latencies: dict[str, list[float]] = {fault: [] for fault in FAULTS}
    for name, (fault, at) in told.items():
        if name in arrivals.first:
            latencies[fault].append(arrivals.first[name] - at)
    others = sum(name not in told or at < told[name][1] for name, at in arrivals.first.items())
    missed = sum(name not in arrivals.first for name in told)
    return Measured(latencies, missed, others, lags, behind, spent, resident_mb(pid))


def show(found: Measured, out: Console) -> bool:
    """Print the figures; whether the bar is met."""
    table = Table("from the batch's sending to the receiver", "alerts", "p50 s", "p95 s", "max s")
    every = [latency for own in found.latencies.values() for latency in own]
    for name, own in (*found.latencies.items(), ("all", every)):
        if own:
            p50, p95 = np.percentile(own, (50, 95))
            table.add_row(name, str(len(own)), f"{p50:.2f}", f"{p95:.2f}", f"{max(own):.2f}")
    out.print(table)
    lags = np.percentile(found.lags or [0.0], (50, 95))
    out.print(f"judging lag p50 {lags[0]:.2f} s, p95 {lags[1]:.2f} s, max {max(found.lags, default=0.0):.2f} s; "
              f"service {found.service:.0%} of a core, {found.memory:,.0f} MB; senders behind by at most "
              f"{found.behind:.2f} s; load {os.getloadavg()[0]:.1f}")  # fmt: skip
    good = bool(every) and not found.missed and float(np.percentile(every, 95)) <= MOST_P95
    out.print(f"{'met' if good else 'MISSED'}: p95 <= {MOST_P95} s; {found.missed} faults without an alert, "
              f"{found.others} alerts of healthy runs")  # fmt: skip
    return good


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks live", description="Alert latency with many live runs.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--history", type=int, default=20_000, help="steps that each run has behind it")
    parser.add_argument("--faulty", type=int, default=60, help="runs that show a fault")
    parser.add_argument("--memory", type=int, default=1024, help="PACENOTE_JUDGING_MEMORY_MIB of the service")
    parser.add_argument("--cost", action="store_true", help="what judging costs, stage by stage, instead")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    options = parser.parse_args(argv)
    if options.seconds < LEAST_SECONDS:
        parser.error(f"--seconds {options.seconds}: at least {LEAST_SECONDS}, so that rows are there to be repeated")
    out = Console()
    os.environ["PACENOTE_JUDGING_MEMORY_MIB"] = str(options.memory)
    os.environ |= {"PACENOTE_ALLOW_PRIVATE_CHANNELS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if options.cost:
        out.print(live_cost.table(min(options.runs, 30), options.history, 12))
        out.print(f"load {os.getloadavg()[0]:.1f}")
        return 0
    with (
        tempfile.TemporaryDirectory() as folder,
        receiver() as (address, arrivals),
        database(options.database, Path(folder)) as url,
    ):
        engine = open_engine(url)
        ensure_schema(engine)
        runs = world(engine, options.runs, options.history, options.seconds, options.faulty, address)
        out.print(
            f"{len(runs)} runs of {options.history:,} steps, {options.seconds} s, {options.database}, "
            f"{options.memory:,} MiB to keep them in"
        )
        with server(url) as (port, pid, _):
            begun = time.time()
            settle(engine)
            out.print(f"all judged for the first time within {time.time() - begun:.1f} s")
            found = measure(engine, port, pid, runs, options.seconds, arrivals)
        engine.dispose()
    return 0 if show(found, out) else 1


@contextmanager
def database(kind: str, folder: Path) -> Generator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/live.db"
        return
    with postgresql(folder) as url:
        if url is None:
            raise SystemExit("PostgreSQL is not installed on this machine.")
        yield url


def settle(engine: Engine) -> None:
    """Wait until what is there is judged."""
    while True:
        with reading(engine) as session:
            if lag(session) == 0.0:
                return
        time.sleep(0.1)


if __name__ == "__main__":
    raise SystemExit(main())
