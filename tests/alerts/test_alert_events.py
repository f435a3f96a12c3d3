"""The stream of alerts from a real server, and the example bot of the documentation on it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from delivery_world import DeliveryWorld
from event_stream import events
from http_receiver import WAIT
from sqlalchemy import Engine

from service.alerts.repository import AlertRepository
from service.database.engine import writing
from service.database.models import Alert

BOT = Path(__file__).parents[2] / "docs" / "alert_bot.py"


class Served:
    """`pacenote serve` without a worker on the test's database: what the test writes is another process's."""

    def __init__(self, database_url: str) -> None:
        command = [sys.executable, "-m", "service.cli.main", "serve", "--port", "0", "--no-worker"]
        environment = os.environ | {"PACENOTE_DATABASE_URL": database_url, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]

    def stream(self, **headers: str) -> Any:
        return httpx.stream("GET", f"{self.url}/api/v1/alerts/events", headers=headers, timeout=WAIT)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def world(engine: Engine) -> DeliveryWorld:
    return DeliveryWorld(engine)


@pytest.fixture
def served(database_url: str, world: DeliveryWorld) -> Iterator[Served]:
    service = Served(database_url)
    yield service
    service.close()


def comment(engine: Engine, alert_id: int, words: str) -> None:
    with writing(engine) as session:
        alert = session.get_one(Alert, alert_id)
        AlertRepository(session).add_change(alert, "commented", time.time(), {"by": "kim", "note": words})


def test_events_of_other_processes_come_in_order_and_none_is_missed(
    served: Served, world: DeliveryWorld, engine: Engine
) -> None:
    alert = str(world.alert())
    with served.stream() as answer:
        stream = events(answer.iter_lines())
        assert int(next(stream)["retry"]) > 0
        comment(engine, 1, "one")
        first = next(stream)
    body = json.loads(first["data"])
    assert (first["event"], body["alert"]["id"], body["change"]["body"]["note"]) == ("commented", alert, "one")
    comment(engine, 1, "two")
    httpx.post(f"{served.url}/api/v1/alerts/{alert}/acknowledge", json={"by": "kim"}).raise_for_status()
    with served.stream(**{"Last-Event-ID": first["id"]}) as answer:
        stream = events(answer.iter_lines())
        next(stream)
        later = [next(stream), next(stream)]
    assert [event["event"] for event in later] == ["commented", "acknowledged"]
    assert [int(event["id"]) for event in later] == [int(first["id"]) + 1, int(first["id"]) + 2]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_filters(served: Served, world: DeliveryWorld, engine: Engine) -> None:
    world.alert()
    address = f"{served.url}/api/v1/alerts/events"

    def first_of(**query: Any) -> str:
        with httpx.stream("GET", address, params={"after": 0, **query}, timeout=WAIT) as answer:
            stream = events(answer.iter_lines())
            next(stream)
            comment(engine, 1, "now")
            return next(stream)["event"]

    assert first_of(project="p", rule="repeated_rows", severity="critical", run=str(world.run.uuid)) == "firing"
    for query in ({"severity": "loud"}, {"after": -1}, {"run": "x"}):
        assert httpx.get(address, params=query).status_code == 422
    other = str(world.alert())
    with writing(engine) as session:
        session.get_one(Alert, 2).rules = ["train_drift"]
    with httpx.stream("GET", address, params={"after": 0, "rule": "train_drift"}, timeout=WAIT) as answer:
        stream = events(answer.iter_lines())
        next(stream)
        assert json.loads(next(stream)["data"])["alert"]["id"] == other, "what came before is of no concern"


def test_the_bot_of_the_documentation(served: Served, world: DeliveryWorld, engine: Engine) -> None:
    code = [line for line in BOT.read_text().splitlines() if line.strip()]
    assert len(code) <= 40
    alert = str(world.alert())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PACENOTE_URL": served.url, "PYTHONUNBUFFERED": "1"}
    bot = subprocess.Popen([sys.executable, str(BOT), str(port)], env=environment, stdout=subprocess.PIPE, text=True)

    def command(text: str) -> str:
        form = {"text": text, "user_name": "kim"}
        with httpx.Client(transport=httpx.HTTPTransport(retries=8)) as client:
            return client.post(f"http://127.0.0.1:{port}", data=form, timeout=WAIT).json()["text"]

    try:
        assert command(str(world.run.uuid)) == "r (s) has not been judged yet. 1 open alert: t."
        assert command("nothing").startswith("path.run_id")
        assert command(f"ack {alert}") == "Acknowledged: t"
        answer = httpx.get(f"{served.url}/api/v1/alerts/{alert}").json()
        assert answer["changes"][-1]["body"]["via"] == "slash command"
        comment(engine, 1, "anything")
        assert bot.stdout is not None
        assert bot.stdout.readline() in ("acknowledged t\n", "commented t\n")
    finally:
        bot.kill()
        bot.communicate()
