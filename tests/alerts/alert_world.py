"""A run that is judged by script on a clock of its own, and its alerts over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient
from judged_world import JudgedWorld, Scripted
from sqlalchemy import Engine

from service.alerts.due import act_on_time
from service.app import create_app
from service.settings import Settings

START = 1_000_000_000.0


class AlertWorld:
    """One run; `say` judges it again on a new step, `by` is who acts."""

    def __init__(self, engine: Engine, client: TestClient) -> None:
        self.world, self.client = JudgedWorld(engine), client
        self.run, self.step, self.now = self.world.run("v7x"), 0, START

    def say(self, seconds: float = 1.0, **said: str) -> None:
        """Judge a new step so many seconds later; rules that are not named say no."""
        self.now += seconds
        self.step += 1
        self.world.points(self.run, [self.step])
        self.world.judge(Scripted(lambda _view: said), clock=lambda: self.now).judge_run(self.run)

    def pass_time(self, seconds: float) -> int:
        self.now += seconds
        return act_on_time(self.world.engine, self.world.broker, "http://pacenote", self.now)

    def only(self, **query: Any) -> dict[str, Any]:
        [item] = self.client.get("/alerts", params=query).json()["items"]
        return self.client.get(f"/alerts/{item['id']}").json()

    def act(self, alert: dict[str, Any], action: str, status: int = 200, **body: Any) -> dict[str, Any]:
        answer = self.client.post(f"/alerts/{alert['id']}/{action}", json={"by": "kim", **body})
        assert answer.status_code == status, answer.text
        return answer.json()

    def messages(self) -> list[tuple[str, str]]:
        """(type, kind of change) of every message, in order."""
        return [(d.payload["type"], d.payload["change"]["kind"]) for d in self.world.deliveries()]


def client_on(database_url: str) -> TestClient:
    settings = Settings(database_url=database_url, worker=False, public_url="https://pacenote.example.com/")
    return TestClient(create_app(settings), base_url="http://test/api/v1")
