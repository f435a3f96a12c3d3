"""A service that is killed while it takes data: with a client that sends again, nothing is lost and nothing doubled."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from sqlalchemy import Engine, func, select

from service.database.engine import reading
from service.database.models import Journal, Receipt, Run
from service.series.repository import SeriesRepository
from service.worker.seal import seal_run
from tests.ingest.store_client import Store

ROOT = Path(__file__).parents[2]
SERVER = """
import sys, threading, time, uvicorn
from service.series import sealing
from service.settings import Settings
from service.worker.seal import seal_due
from tests.ingest.store_client import create_store
sealing.MOST_ROWS = 5
app = create_store(Settings(database_url=sys.argv[1]))
def seal():
    while True:
        seal_due(app.state.context.engine)
        time.sleep(0.002)  # a loop without a pause keeps the interpreter to itself
threading.Thread(target=seal, daemon=True).start()
uvicorn.run(app, fd=int(sys.argv[2]), log_level="critical")
"""


@contextmanager
def serving(url: str, listener: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """A server process on a socket that outlives it, so that the next one has the same address."""
    command = [sys.executable, "-c", SERVER, url, str(listener.fileno())]
    process = subprocess.Popen(command, pass_fds=[listener.fileno()], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_kill_minus_nine_in_the_middle(database_url: str, engine: Engine) -> None:
    batches, killed_after = 40, (7, 23)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=address, timeout=60) as http:
            unsent, segment, duplicates = list(range(batches)), "", 0
            for stop in (*killed_after, batches):
                with serving(database_url, listener) as process:
                    store = Store(http, "killed")
                    segment = segment or store.start()
                    while unsent and batches - len(unsent) < stop:
                        duplicates += send(store, segment, unsent[0])
                        unsent.pop(0)
                    if unsent:  # one more request is on its way when the process dies
                        with socket.create_connection(listener.getsockname()) as raw:
                            raw.sendall(request(segment, unsent[0]))
                            time.sleep(0.002 * stop)  # now before, now after its commit
                            process.send_signal(signal.SIGKILL)
                            process.wait()
    assert duplicates <= len(killed_after)
    with reading(engine) as session:
        run_id = session.scalars(select(Run.id)).one()
    for _ in range(2):
        with reading(engine) as session:
            points = SeriesRepository(session).read(run_id, ["a", "b"], superseded=True)
            assert points["a"].steps.tolist() == list(range(2 * batches))
            assert points["a"].values.tolist() == [step / 2 for step in range(2 * batches)]
            assert points["b"].steps.tolist() == list(range(0, 2 * batches, 2))
            assert session.scalar(select(func.count()).select_from(Receipt)) == batches
        seal_run(engine, run_id)
    with reading(engine) as session:
        assert session.scalar(select(func.count()).select_from(Journal)) == 0


def columns(seq: int) -> dict[str, list[float | None]]:
    return {"a": [float(seq), seq + 0.5], "b": [1.0, None]}


def send(store: Store, segment: str, seq: int) -> bool:
    """Send until it is taken, as the hook does."""
    for _ in range(100):
        try:
            answer = store.batch(segment, [2 * seq, 2 * seq + 1], columns(seq), seq=seq)
        except httpx.TransportError:
            continue
        assert answer.status_code == 202, answer.text
        duplicate: bool = answer.json()["duplicate"]
        return duplicate
    raise AssertionError("the server does not answer")


def request(segment: str, seq: int) -> bytes:
    steps = [2 * seq, 2 * seq + 1]
    body = {"process": 0, "seq": seq, "sent_at": 1.0, "steps": steps, "times": [1.0 * step for step in steps]}
    data = json.dumps(body | {"metrics": columns(seq)}).encode()
    head = f"POST /api/v1/segments/{segment}/batches HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data
