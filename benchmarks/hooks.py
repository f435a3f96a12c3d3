"""What the hook costs a training loop: the time of `log` with 20 scalars, beside a null call and two naive loggers.

Trackers that are installed beside it do the same work in the paced table.

Tight: calls follow each other at once. Paced: 5 ms of sleep between them, as if waiting for a device; caches are cold
and the background threads wake up in between, so this is the honest figure for a live run. Loop: 1 ms steps of
NumPy work; the time of whole steps shows what the background threads take of the interpreter lock. The service is a
real HTTP sink in another process. A process of its own runs every case, so that none inherits another's garbage.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import hook_life, hook_rows
from benchmarks.hook_peers import PEERS, installed, open_adapter, open_peer

SCALARS = 20
TIGHT_STEPS = 20_000
PACED_STEPS = 1_500
PAUSE_SECONDS = 0.005
LOOP_STEPS = 2_000
LOOP_PAUSE_SECONDS = 0.0005
LOOP_ROUNDS = 8
T_95 = 2.365  # Student's t, 7 degrees of freedom
CASES = {
    "null": "null call",
    "dumps": "json.dumps",
    "jsonl": "JSONL line in the loop",
    "offline": "hook, spool only",
    "hook": "hook, HTTP sink",
    "maxtext": "hook by MaxText's adapter",
}
TIMES_BELOW = 8  # how far the hook stays below the best of the trackers
Log = Callable[[int, dict[str, float]], object]


@dataclass(frozen=True, slots=True)
class Result:
    """Times of single calls in µs, of `finish` in s, of CPU per step in µs: of the process, and of the calling thread
    within the call, which a busy machine disturbs least."""

    mean: float
    p50: float
    p99: float
    max: float
    loop_seconds: float
    finish_seconds: float
    cpu: float
    own: float


class Sink(BaseHTTPRequestHandler):
    """Takes everything; the least a service can do."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer()

    def answer(self) -> None:
        """Takes it."""
        answer = b'{"accepted":1,"duplicate":false}'
        self.send_response(202)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve() -> None:
    """The sink's process: prints its port and serves until it is ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    print(server.server_port, flush=True)
    server.serve_forever()


def measure(log: Log, steps: int, pause: float, finish: Callable[[], object]) -> Result:
    """Calls `log` `steps` times with values that change, as a training loop's do."""
    names = [f"train/metric_{i}" for i in range(SCALARS)]
    # Values of float32 origin, as a device gives them.
    values = np.random.default_rng(0).normal(size=(256, SCALARS)).astype(np.float32).astype(np.float64)
    times = np.empty(steps, np.int64)
    own = 0
    clock, thread_clock, sleep = time.perf_counter_ns, time.thread_time_ns, time.sleep
    for step in range(200):
        log(step, dict(zip(names, values[step % 256].tolist(), strict=True)))
    sleep(0.6)
    cpu, started = time.process_time(), time.perf_counter()
    for step in range(steps):
        metrics = dict(zip(names, values[step % 256].tolist(), strict=True))
        thread_before = thread_clock()
        before = clock()
        log(step, metrics)
        times[step] = clock() - before
        own += thread_clock() - thread_before
        if pause:
            sleep(pause)
    looped = time.perf_counter()
    finish()
    ended = time.perf_counter()
    micros = times / 1000
    return Result(
        float(micros.mean()),
        float(np.percentile(micros, 50)),
        float(np.percentile(micros, 99)),
        float(micros.max()),
        looped - started,
        ended - looped,
        (time.process_time() - cpu) / steps * 1e6,
        own / steps / 1000,
    )


def measure_loop(log: Log, steps: int) -> list[float]:
    """Times of whole steps in µs: some 0.5 ms of NumPy and Python work, the call, and 0.5 ms of sleep."""
    names = [f"train/metric_{i}" for i in range(SCALARS)]
    matrix = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    times: list[float] = []
    for step in range(steps):
        started = time.perf_counter_ns()
        product = matrix
        for _ in range(10):
            product = product @ matrix
            product /= np.abs(product).max()
        log(step, dict(zip(names, product[0, :SCALARS].tolist(), strict=True)))
        time.sleep(LOOP_PAUSE_SECONDS)
        times.append((time.perf_counter_ns() - started) / 1000)
    return times


def run_loop(case: str, steps: int) -> list[float]:
    """The loop in this process, without the hook or with it."""
    if case == "null":
        return measure_loop(lambda step, metrics: None, steps)
    import trainer_hooks

    with trainer_hooks.start("benchmark", project="benchmark", tokens_per_step=1024) as run:
        return measure_loop(run.log, steps)


def run_case(case: str, steps: int, pause: float) -> Result:
    """One case in this process; the hook's cases find PACENOTE_URL and PACENOTE_SPOOL_DIR in the environment."""
    if case == "null":
        return measure(lambda step, metrics: None, steps, pause, lambda: None)
    if case == "dumps":
        return measure(lambda step, metrics: json.dumps(metrics), steps, pause, lambda: None)
    if case == "jsonl":
        with (Path(os.environ["PACENOTE_SPOOL_DIR"]) / "log.jsonl").open("w") as file:
            return measure(
                lambda step, metrics: file.write(json.dumps({"step": step, **metrics}) + "\n"),
                steps,
                pause,
                file.flush,
            )
    if case in PEERS:
        return _measured(open_peer(case, os.environ["PACENOTE_SPOOL_DIR"]), steps, pause)
    if case == "maxtext":
        return _measured(open_adapter(), steps, pause)
    import trainer_hooks

    run = trainer_hooks.start("benchmark", project="benchmark", tokens_per_step=1024, strict=False)

    def finish() -> None:
        report = run.finish(timeout=60.0)
        if report.dropped or report.counts or (case == "hook" and report.left_in_spool):
            raise RuntimeError(f"the benchmark lost records: {report}")

    return measure(run.log, steps, pause, finish)


def _measured(opened: tuple[Log, Callable[[], object]], steps: int, pause: float) -> Result:
    log, finish = opened
    return measure(log, steps, pause, finish)


def _in_own_process(case: str, url: str, *options: str, python: str = sys.executable) -> str:
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PACENOTE_URL": url,
            "PACENOTE_SPOOL_DIR": folder,
            "PACENOTE_MODE": "offline" if case == "offline" else "online",
        }
        command = [python, "-m", "benchmarks.hooks", "--case", case, *options]
        return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def _calls(case: str, steps: int, pause: float, url: str, python: str = sys.executable) -> Result:
    printed = _in_own_process(case, url, f"--steps={steps}", f"--pause={pause}", python=python).splitlines()
    return Result(**json.loads(next(line for line in printed if line.startswith('{"mean"'))))  # trackers print too


def _loop_table(url: str) -> Table:
    times: dict[str, list[float]] = {"null": [], "hook": []}
    differences: list[float] = []  # of neighbouring runs: the machine's own noise is far larger
    for turn in range(LOOP_ROUNDS):
        means: dict[str, float] = {}
        for case in ("null", "hook") if turn % 2 == 0 else ("hook", "null"):
            found = json.loads(_in_own_process(case, url, f"--loop={LOOP_STEPS}"))
            times[case] += found
            means[case] = float(np.mean(found))
        differences.append(means["hook"] - means["null"])
    mean = float(np.mean(differences))
    half = T_95 * float(np.std(differences, ddof=1)) / LOOP_ROUNDS**0.5
    table = Table(
        title=f"loop of 1 ms steps, {LOOP_ROUNDS} pairs of {LOOP_STEPS:,}",
        title_justify="left",
        caption=f"the hook adds to a step: {mean:+.1f} µs (95 %: {mean - half:+.1f} … {mean + half:+.1f})",
        caption_justify="left",
    )
    table.add_column("whole step")
    for column in ("mean µs", "p50 µs", "p99 µs", "p99.9 µs", "max µs"):
        table.add_column(column, justify="right")
    for case, collected in times.items():
        figures = [np.mean(collected), *np.percentile(collected, [50, 99, 99.9, 100])]
        table.add_row(CASES[case], *(f"{figure:,.0f}" for figure in figures))
    return table


def _table(title: str, results: dict[str, Result]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("per step")
    for column in (
        "mean µs",
        "p50 µs",
        "p99 µs",
        "max µs",
        "× null (mean)",
        "× JSONL",
        "own CPU",
        "loop s",
        "finish s",
        "CPU µs",
    ):
        table.add_column(column, justify="right")
    null, naive = results["null"], results["jsonl"]
    for case, r in results.items():
        table.add_row(
            {**CASES, **PEERS}[case],
            *(f"{value:,.2f}" for value in (r.mean, r.p50, r.p99, r.max, r.mean / null.mean, r.mean / naive.mean)),
            f"{r.own:.2f}",
            f"{r.loop_seconds:.3f}",
            f"{r.finish_seconds:.3f}",
            f"{r.cpu:.1f}",
        )
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Prints both tables. 0 if the aims are met, else 1."""
    parser = argparse.ArgumentParser(prog="benchmarks hooks", description=__doc__)
    parser.add_argument("--case", choices=[*CASES, *PEERS, "sink"], help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--pause", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--loop", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--peers", default=sys.executable, help="the Python that has the other trackers")
    chosen = parser.parse_args(argv)
    if chosen.case == "sink":
        serve()
        return 0
    if chosen.case and chosen.loop:
        print(json.dumps(run_loop(chosen.case, chosen.loop)))
        return 0
    if chosen.case:
        print(json.dumps(asdict(run_case(chosen.case, chosen.steps, chosen.pause))))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 120)
    command = [sys.executable, "-m", "benchmarks.hooks", "--case", "sink"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sink:
        try:
            assert sink.stdout is not None
            url = f"http://127.0.0.1:{int(sink.stdout.readline())}"
            tight = {case: _calls(case, TIGHT_STEPS, 0.0, url) for case in CASES}
            console.print(_table(f"log() of {SCALARS} scalars, tight loop, {TIGHT_STEPS:,} steps", tight))
            peers = installed(chosen.peers)
            paced = {case: _calls(case, PACED_STEPS, PAUSE_SECONDS, url) for case in CASES}
            paced |= {case: _calls(case, PACED_STEPS, PAUSE_SECONDS, url, chosen.peers) for case in peers}
            console.print(_table(f"paced, {PAUSE_SECONDS * 1000:.0f} ms per step, {PACED_STEPS:,} steps", paced))
            console.print(_loop_table(url))
            life, life_aims = hook_life.table(url)
            console.print(life)
        finally:
            sink.terminate()
    rows, row_aims = hook_rows.table()
    console.print(rows)
    null, hook = paced["null"], paced["hook"]
    aims = {
        "tight p50 ≤ 2 µs": tight["hook"].p50 <= 2.0,
        "paced, over the null call: mean ≤ 10 µs": hook.mean - null.mean <= 10.0,
        "p99 ≤ 50 µs": hook.p99 - null.p99 <= 50.0,
        "calling thread's CPU ≤ 10 µs": hook.own - null.own <= 10.0,
        "max ≤ 1 ms": hook.max - null.max <= 1000.0,
        **row_aims,
        **life_aims,
    }
    if peers:
        best, mean = (result - null.mean for result in (min(paced[case].mean for case in peers), hook.mean))
        aims[f"{best / mean:.1f} times below the best tracker"] = mean * TIMES_BELOW <= best
    console.print("; ".join(f"{aim}: {'met' if met else 'missed'}" for aim, met in aims.items()))
    return 0 if all(aims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
