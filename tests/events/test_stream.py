"""The event stream of a real server process: what it carries, what it leaves out, and that it ends with the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from delivery_world import DeliveryWorld
from event_stream import events

from service.database.engine import open_engine
from service.ingest.segments import run_uuid


class Service:
    """`pacenote serve` in a process of its own."""

    def __init__(self, url: str, *more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "service.cli.main", "serve", "--port", "0", *(more or ("--no-worker",))],
            env=os.environ | {"PACENOTE_DATABASE_URL": url, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]
        self.http = httpx.Client(base_url=f"{self.url}/api/v1", timeout=30)

    def start(self, project: str, run: str) -> str:
        segment = str(uuid4())
        body: dict[str, Any] = {"process": 0, "seq": 0, "sent_at": time.time(), "project": project, "run": run}
        body |= {"role": "reproduction", "stage": "stage1", "kind": "trainer", "start_step": 0, "tokens_per_step": 8}
        body |= {"topology": {}, "config": {}, "versions": {}, "sample_rows": 1, "started_at": time.time()}
        assert self.http.put(f"/segments/{segment}", json=body).status_code == 202
        return segment

    def log(self, segment: str, step: int) -> None:
        body = {"process": 0, "seq": step, "sent_at": time.time(), "steps": [step], "times": [time.time()]}
        answer = self.http.post(f"/segments/{segment}/batches", json=body | {"metrics": {"train/ce_loss": [1.0]}})
        assert answer.status_code == 202

    def end(self) -> None:
        self.http.close()
        self.process.kill()
        self.process.wait(30)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(f"sqlite:///{tmp_path_factory.mktemp('events') / 'events.db'}")
    yield service
    service.end()


def test_a_stream_of_one_run(service: Service) -> None:
    mine, other = service.start("p", "mine"), service.start("q", "other")
    run = str(run_uuid("p", "mine", "stage1"))
    with httpx.stream("GET", f"{service.url}/api/v1/events", params={"run": run}, timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        stream = events(answer.iter_lines())
        first = next(stream)
        assert int(first["retry"]) > 0, "the stream is open once the first event came"
        service.log(other, 1)
        service.log(mine, 2)
        service.log(mine, 3)
        heard = [event for event in (next(stream), next(stream)) if event.get("event") == "points"]
    bodies = [json.loads(event["data"]) for event in heard]
    assert [(body["run"], body["project"]) for body in bodies] == [(run, "p")] * 2
    numbers = [int(event["id"]) for event in heard]
    assert numbers[0] < numbers[1]


def test_a_stream_of_one_project(service: Service) -> None:
    mine, other = service.start("p", "mine"), service.start("q", "other")
    with httpx.stream("GET", f"{service.url}/api/v1/events", params={"project": "q"}, timeout=30) as answer:
        stream = events(answer.iter_lines())
        next(stream)
        service.log(mine, 1)
        service.log(other, 2)
        assert json.loads(next(stream)["data"])["project"] == "q"


@pytest.mark.parametrize("how", ["header", "address"])
def test_a_stream_goes_on_where_it_was_lost(service: Service, how: str) -> None:
    segment = service.start("p", "lost")
    run = str(run_uuid("p", "lost", "stage1"))

    def listen(last: str | None, wanted: int) -> list[dict[str, str]]:
        params, headers = {"run": run}, {}
        if last is not None and how == "header":
            headers["Last-Event-ID"] = last
        elif last is not None:
            params["since"] = last
        address = f"{service.url}/api/v1/events"
        with httpx.stream("GET", address, params=params, headers=headers, timeout=30) as answer:
            stream = events(answer.iter_lines())
            next(stream)
            if last is None:
                service.log(segment, 1)
            return [next(stream) for _ in range(wanted)]

    (first,) = listen(None, 1)
    service.log(segment, 2)
    service.log(segment, 3)
    heard = listen(first["id"], 2)
    assert [json.loads(event["data"])["last_step"] for event in heard] == [2, 3]
    assert [event["event"] for event in listen("7", 1)] == ["missed"]  # of a process long gone
    if how == "header":
        assert [event["event"] for event in listen("no number", 1)] == ["missed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_streams_end_with_the_server(tmp_path: Path, number: signal.Signals) -> None:
    service = Service(f"sqlite:///{tmp_path / 'events.db'}")
    with httpx.stream("GET", f"{service.url}/api/v1/events", timeout=30) as answer:
        stream = events(answer.iter_lines())
        next(stream)
        service.process.send_signal(number)
        assert list(stream) == [], "the stream is ended, not cut off"
    assert service.process.wait(30) == 0
    out, _ = service.process.communicate()
    assert "Traceback" not in out
    service.http.close()


def test_a_run_that_is_no_id(service: Service) -> None:
    answer = service.http.get("/events", params={"run": "mine"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "query.run"


def test_what_one_process_does_is_heard_at_another(database_url: str) -> None:
    with ThreadPoolExecutor() as pool:
        here, there = pool.map(Service, [database_url] * 2)
    try:
        mine, other = here.start("p", "mine"), there.start("q", "other")
        run = str(run_uuid("p", "mine", "stage1"))
        with httpx.stream("GET", f"{there.url}/api/v1/events", timeout=30) as answer:
            stream = events(answer.iter_lines())
            next(stream)
            engine = open_engine(database_url)
            alert = DeliveryWorld(engine).alert()
            engine.dispose()
            hear(stream, "alert", lambda body: body["alert"] == str(alert))
            there.log(other, 1)
            here.log(mine, 2)
            heard = [next(stream) for _ in range(2)]
            bodies = [json.loads(event["data"]) for event in heard]
            assert [(event["event"], body["project"]) for event, body in zip(heard, bodies, strict=True)] == [
                ("points", "q"),
                ("points", "p"),
            ], "each once, also that of its own process"
            assert (bodies[1]["run"], bodies[1]["last_step"]) == (run, 2)
            assert here.http.post(f"/alerts/{alert}/acknowledge", json={"by": "kim"}).status_code == 200
            hear(stream, "alert", lambda body: body["change"] == "acknowledged")
            setting = {"tolerance": 0.5, "by": "kim", "reason": "a test"}
            assert here.http.put(f"/runs/{run}/rules/train_drift", json=setting).status_code == 200
            hear(stream, "settings", lambda body: body["run"] == run)
            assert here.http.patch(f"/runs/{run}", json={"archived": True}).status_code == 200
            hear(stream, "run", lambda body: body["run"] == run)
            number = heard[0]["id"]
        with httpx.stream("GET", f"{here.url}/api/v1/events", params={"since": number}, timeout=30) as answer:
            stream = events(answer.iter_lines())
            next(stream)
            assert next(stream)["event"] == "missed", "the numbers of one process mean nothing at another"
    finally:
        here.end()
        there.end()


def hear(stream: Iterator[dict[str, str]], kind: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The next event of a kind about which `wanted` says yes."""
    for event in stream:
        if event.get("event") == kind and wanted(body := json.loads(event["data"])):
            return body
    raise AssertionError(f"the stream ended before {kind} came")
