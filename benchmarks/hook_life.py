"""What the hook does over a run's life: its import, its threads at a real step's pace, a kill, a service that is away.

Threads are measured by the CPU clock of the process less that of the training thread: 20 scalars and the rows of one
host every 0.76 s, sent to an HTTP sink, and again with a copy of the spool on an S3 server. The hour without a service
passes in half a minute: each record holds as many steps as one of ten steps a second does.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.hook_rows import BATCHES, SHAPE, STEP_SECONDS, batches

SCALARS = 20
WARM_STEPS = 14
LIVE_STEPS = 60
KILLS = 10
HOUR_STEPS = 36_000  # ten a second
STEPS_IN_A_RECORD = 5
MOST_THREADS = 0.005  # of a core
MOST_IMPORT_SECONDS = 0.15
MOST_LOST_SECONDS = 1.0
MOST_GROWTH_MB = 8.0
_S3_KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}


def _metrics(step: int) -> dict[str, float]:
    return {f"train/metric_{i}": 1.0 / (step + i + 1) for i in range(SCALARS)}


IMPORT = """
import sys, time, numpy
wall, cpu = time.perf_counter(), time.thread_time()
import trainer_hooks
print(time.perf_counter() - wall, time.thread_time() - cpu, int("jax" in sys.modules))
"""


def _imported() -> tuple[float, float, float]:
    """Seconds of `import trainer_hooks` where only numpy is imported: wall, CPU; 1 if jax came with it."""
    command = [sys.executable, "-c", IMPORT]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    wall, cpu, jax = map(float, printed)
    return wall, cpu, jax


def _device() -> dict[str, float]:
    """Mean µs of `log` on the calling thread with 20 floats, and with 20 jax scalars."""
    import jax.numpy as jnp

    import trainer_hooks

    times: dict[str, list[float]] = {"floats": [], "arrays": []}
    with trainer_hooks.start("device", project="benchmark") as run:
        for step in range(400):
            values = _metrics(step)
            arrays = {name: jnp.float32(value) for name, value in values.items()}
            for name, given in (("floats", values), ("arrays", arrays)):
                started = time.thread_time_ns()
                run.log(step, given)
                times[name].append((time.thread_time_ns() - started) / 1000)
            time.sleep(0.005)
    return {name: float(np.median(found[50:])) for name, found in times.items()}


def _live() -> dict[str, float]:
    """The share of a core that the hook's threads use beside steps of 0.76 s."""
    import trainer_hooks

    rows = batches()
    with trainer_hooks.start("live", project="benchmark", tokens_per_step=SHAPE[0] * SHAPE[1]) as run:
        for step in range(WARM_STEPS):  # packages are imported, connections opened, the first parts written
            run.log(step, _metrics(step))
            run.log_rows(step, rows[step % BATCHES])
            time.sleep(STEP_SECONDS)
        started, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
        for step in range(WARM_STEPS, LIVE_STEPS + WARM_STEPS):
            run.log(step, _metrics(step))
            run.log_rows(step, rows[step % BATCHES])
            time.sleep(STEP_SECONDS)
        own, cpu = time.thread_time() - own, time.process_time() - cpu
        return {"threads": (cpu - own) / (time.perf_counter() - started), "calls": own / LIVE_STEPS}


def _killed() -> dict[str, float]:
    """Logs until it is killed, saying when it did."""
    import trainer_hooks

    run = trainer_hooks.start("killed", project="benchmark")
    step = 0
    while True:
        step += 1
        run.log(step, {"at": time.time()})
        if step % 5 == 0:
            print(step, time.time(), flush=True)
        time.sleep(0.002)


def _hour() -> dict[str, float]:
    """An hour's points while nobody answers; then the service is there."""
    import trainer_hooks
    import trainer_hooks.writer

    trainer_hooks.writer.RECORD_SECONDS = STEPS_IN_A_RECORD * 0.0008
    trainer_hooks.writer.POLL_SECONDS = 0.0004
    run = trainer_hooks.start("hour", project="benchmark", tokens_per_step=1024)
    early = 0.0
    for step in range(1, HOUR_STEPS + 1):
        run.log(step, _metrics(step))
        time.sleep(0.0007)
        if step == HOUR_STEPS // 4:
            early = _resident_mb()
    late = _resident_mb()
    print("away", flush=True)
    sys.stdin.readline()
    report = run.finish(timeout=300.0)
    return {"early": early, "late": late, "left": report.left_in_spool + report.dropped, "sent": report.sent}


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _s3() -> dict[str, float]:
    """An S3 server; prints its port and serves until it is ended."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
    server.stop()
    return {}


def _process(case: str, url: str, folder: str, **more: str) -> subprocess.Popen[str]:
    offline = {"PACENOTE_MODE": "online" if url else "offline", "PACENOTE_URL": url}
    environment = {**os.environ, **offline, "PACENOTE_SPOOL_DIR": folder, "JAX_PLATFORMS": "cpu", **more}
    command = [sys.executable, "-m", "benchmarks.hook_life", case]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    )


def _measured(case: str, url: str = "", **more: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        printed = _process(case, url, more.pop("PACENOTE_SPOOL_DIR", folder), **more).communicate()[0]
    return json.loads(printed.splitlines()[-1])


def _copied(url: str) -> dict[str, float]:
    """As `_live`, with a copy of the spool on an S3 server in another process."""
    import boto3

    with tempfile.TemporaryDirectory() as folder, _process("s3", "", folder) as server:
        assert server.stdout is not None
        address = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}", **_S3_KEYS}
        os.environ.update(address)
        boto3.client("s3").create_bucket(Bucket="spools")
        try:
            return _measured("live", url, PACENOTE_SPOOL_DIR="s3://spools/live", XDG_DATA_HOME=folder, **address)
        finally:
            server.kill()


def _lost() -> list[float]:
    """Seconds between the last call and the newest one that is in the spool, for each of some kills."""
    lost: list[float] = []
    for _ in range(KILLS):
        with tempfile.TemporaryDirectory() as folder, _process("killed", "", folder) as trainer:
            assert trainer.stdout is not None
            trainer.stdout.readline()
            time.sleep(random.uniform(0.6, 1.8))
            trainer.send_signal(signal.SIGKILL)
            called = float(trainer.stdout.read().splitlines()[-1].split()[1])
            lost.append(called - _newest(folder))
    return lost


def _newest(folder: str) -> float:
    from trainer_hooks.spool import Cursor, Position, part_ends
    from trainer_hooks.stores import LocalStore

    store, newest = LocalStore(Path(folder)), 0.0
    for spool, ends in part_ends(store).items():
        cursor = Cursor(store, spool, Position(), ends)
        while (record := cursor.peek()) is not None:
            if record.kind == "batches":
                newest = max(newest, *json.loads(record.body)["times"])
            cursor.acknowledge(record.number)
    return newest


def _away() -> tuple[dict[str, float], int]:
    """What the hour did to the trainer, and how many steps arrived after it."""
    from benchmarks.hooks import Sink

    arrived: set[int] = set()

    class Counting(Sink):
        def do_POST(self) -> None:  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            arrived.update(json.loads(body).get("steps", ()))
            self.answer()

        do_PUT = do_POST  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Counting, bind_and_activate=False)
    server.server_bind()  # bound and not listening: connections are refused, and the port stays ours
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with tempfile.TemporaryDirectory() as folder, _process("hour", url, folder) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        server.server_activate()
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        found = json.loads(trainer.communicate("\n")[0].splitlines()[-1])
        server.shutdown()
        server.server_close()
    return found, len(arrived)


def table(url: str) -> tuple[Table, dict[str, bool]]:
    """The table, and which aims are met."""
    wall, cpu, jax = min(_imported() for _ in range(5))
    device = _measured("device")
    live, copied = _measured("live", url), _copied(url)
    lost = _lost()
    hour, arrived = _away()
    shown = Table(title="over a run's life", title_justify="left")
    for column in ("what", "measured", "limit"):
        shown.add_column(column, justify="left" if column == "what" else "right")

    def add(what: str, measured: str, limit: str) -> None:
        shown.add_row(what, measured, limit)

    add("import beyond numpy, wall, best of 5", f"{wall:.3f} s", f"{MOST_IMPORT_SECONDS} s")
    add("import beyond numpy, CPU", f"{cpu:.3f} s", "")
    add("log of 20 floats, median", f"{device['floats']:.1f} µs", "")
    add("log of 20 jax scalars, median", f"{device['arrays']:.1f} µs", "as floats")
    for name, one in (("HTTP", live), ("HTTP and a copy on S3", copied)):
        add(f"threads, {name}", f"{one['threads'] * 100:.2f} % of a core", f"{MOST_THREADS * 100} %")
        add("… log and log_rows, CPU a step", f"{one['calls'] * 1000:.3f} ms", "")
    add(f"lost by SIGKILL, worst of {KILLS}", f"{max(lost):.2f} s", f"{MOST_LOST_SECONDS} s")
    growth = hour["late"] - hour["early"]
    add("memory over the last ¾ of an hour without a service", f"{growth:+.1f} MB", f"{MOST_GROWTH_MB} MB")
    add("steps that arrived after it", f"{arrived:,}", f"{HOUR_STEPS:,}")
    return shown, {
        f"import ≤ {MOST_IMPORT_SECONDS} s, no jax": wall <= MOST_IMPORT_SECONDS and not jax,
        "jax scalars as floats": device["arrays"] <= device["floats"] + 10.0,
        "threads ≤ 0.5 % of a core": live["threads"] <= MOST_THREADS,
        "with a copy on S3 ≤ 0.5 %": copied["threads"] <= MOST_THREADS,
        "SIGKILL loses ≤ 1 s": max(lost) <= MOST_LOST_SECONDS,
        "an hour away: memory flat": growth <= MOST_GROWTH_MB,
        "…and all arrives": arrived == HOUR_STEPS and hour["left"] == 0,
    }


def main() -> None:
    """One case in this process; its figures as JSON."""
    cases = {"device": _device, "live": _live, "killed": _killed, "hour": _hour, "s3": _s3}
    print(json.dumps(cases[sys.argv[1]]()))


if __name__ == "__main__":
    main()
