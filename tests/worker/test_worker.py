"""The whole way: points over HTTP, judged, an alert, and a message at its receiver."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from http_receiver import WAIT, Answer, Receiver
from judged_world import JudgedWorld
from sqlalchemy import Engine
from standardwebhooks import Webhook

from service.app import create_app
from service.database.engine import reading
from service.references.repository import ReferenceRepository
from service.series.repository import SeriesRepository
from service.settings import Settings

HOSTS, ROWS = 4, 2
TRAIN = "train/ce_loss"
SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()


@contextmanager
def running(database_url: str) -> Iterator[TestClient]:
    app = create_app(Settings(database_url=database_url, allow_private_channels=True, alert_clear_seconds=0.0))
    with TestClient(app, base_url="http://test/api/v1") as client:
        yield client


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        threading.Event().wait(0.02)


class Trainer:
    """Sends the reference's own losses and the rows it is told to, as the hook would."""

    def __init__(self, client: TestClient, losses: dict[int, float], start_step: int = 0) -> None:
        self.client, self.losses, self.segment, self.seq = client, losses, uuid4(), 0
        self._send("put", f"/segments/{self.segment}", {
            "project": "lab", "run": "v7x", "stage": "stage1", "reference": "lab", "started_at": time.time(),
            "start_step": start_step, "tokens_per_step": 1024, "topology": {"hosts": HOSTS}, "sample_rows": 1,
            "data": {"rows": 3200, "epochs": 1},
        })  # fmt: skip

    def _send(self, method: str, path: str, body: dict[str, Any]) -> None:
        self.seq += 1
        answer = self.client.request(method, path, json={"process": 0, "seq": self.seq, "sent_at": time.time()} | body)
        assert answer.status_code == 202, answer.text

    def train(self, steps: range, first_row: Callable[[int], int]) -> None:
        """At each step every host reads two rows; `first_row` is the number of the first row of a step."""
        self._send("post", f"/segments/{self.segment}/batches", {
            "steps": list(steps), "times": [time.time()] * len(steps),
            "metrics": {TRAIN: [self.losses[step] for step in steps]},
        })  # fmt: skip
        for host in range(HOSTS):
            read = [(step, first_row(step) + host * ROWS + i) for step in steps for i in range(ROWS)]
            self._send("post", f"/segments/{self.segment}/fingerprints", {
                "kind": "rows", "host": host, "sample": 1, "steps": [step for step, _ in read],
                "hashes": [hashlib.blake2b(b"%d" % row, digest_size=8).hexdigest() for _, row in read],
                "seen": [[steps[0], steps[-1], ROWS]],
            })  # fmt: skip


@pytest.fixture
def losses(engine: Engine) -> dict[int, float]:
    JudgedWorld(engine)
    with reading(engine) as session:
        references = ReferenceRepository(session)
        reference = references.current("lab")
        assert reference is not None
        run = references.run_of(reference.id, "stage1")
        assert run is not None
        points = SeriesRepository(session).read(run.id, [TRAIN])[TRAIN]
        return dict(zip(points.steps.tolist(), points.values.tolist(), strict=True))


def add_channels(client: TestClient, receiver: Receiver) -> None:
    hook = {"name": "bot", "kind": "webhook", "url": receiver.url + "/bot", "secret": SECRET}
    slack = {"name": "team", "kind": "slack", "url": receiver.url + "/slack"}
    for channel in (hook, slack):
        assert client.post("/channels", json=channel).status_code == 201


def changes(client: TestClient, alert: str) -> list[str]:
    return [change["kind"] for change in client.get(f"/alerts/{alert}").json()["changes"]]


def test_from_points_to_the_receiver_and_back_to_normal(
    database_url: str, losses: dict[int, float], receiver: Receiver
) -> None:
    with running(database_url) as client:
        add_channels(client, receiver)
        trainer = Trainer(client, losses)
        for first in range(1, 61, 20):
            trainer.train(range(first, first + 20), lambda step: step * HOSTS * ROWS)
        [run] = client.get("/runs", params={"role": "reproduction"}).json()["items"]
        until(lambda: client.get(f"/runs/{run['id']}/judgements").json()["items"] != [])
        assert client.get("/alerts").json()["items"] == []
        trainer.train(range(61, 101), lambda step: (step - 60) * HOSTS * ROWS)  # what was read before, again
        messages = {request.path: request for request in receiver.take(2)}
        body = Webhook(SECRET).verify(messages["/bot"].body, messages["/bot"].headers)
        assert body["type"] == "alert.firing"
        data = body["data"]
        assert data["alert"]["rules"] == ["repeated_rows"]
        assert data["since"]["step"][0] <= 62
        assert data["run"]["id"] == run["id"]
        facts = {fact["label"]: fact["text"] for fact in data["facts"]}
        assert facts["Held-out change"].startswith("cannot tell yet")
        assert "repeat" in messages["/slack"].json["text"]
        until(lambda: client.get(f"/runs/{run['id']}/verdict").json()["state"] == "drifting")

        again = Trainer(client, losses, start_step=60)  # a rewind to before it began, with the loader mended
        again.train(range(61, 81), lambda step: step * HOSTS * ROWS)
        [alert] = client.get("/alerts").json()["items"]
        until(lambda: "withdrawn" in changes(client, alert["id"]))
        again.train(range(81, 101), lambda step: step * HOSTS * ROWS)
        later = {request.path: request.json for request in receiver.take(2)}
        assert later["/bot"]["type"] == "alert.resolved"
        until(lambda: {d["state"] for d in client.get(f"/alerts/{alert['id']}").json()["deliveries"]} == {"delivered"})
        assert receiver.nothing_left()
        happened = [kind for kind in changes(client, alert["id"]) if kind != "evidence"]
        assert happened == [
            "firing",
            "withdrawn",
            "resolved",
        ]  # a rewind takes back at once what its superseded part raised


def test_what_one_process_left_the_next_one_does(
    database_url: str, losses: dict[int, float], receiver: Receiver
) -> None:
    receiver.will("/bot", Answer(manner="never"), Answer())
    receiver.will("/slack", Answer(manner="never"), Answer())
    with running(database_url) as client:
        add_channels(client, receiver)
        trainer = Trainer(client, losses)
        trainer.train(range(1, 21), lambda step: step * HOSTS * ROWS)
        trainer.train(range(21, 41), lambda step: (step - 20) * HOSTS * ROWS)
        first = {request.path: request for request in receiver.take(2)}
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(("worker-", "deliver-"))]
    with running(database_url) as client:
        second = {request.path: request for request in receiver.take(2)}
        assert second["/bot"].id == first["/bot"].id
        [alert] = client.get("/alerts").json()["items"]
        until(lambda: {d["state"] for d in client.get(f"/alerts/{alert['id']}").json()["deliveries"]} == {"delivered"})
        assert receiver.nothing_left()
