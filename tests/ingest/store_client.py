"""The store's endpoints as an application of their own, and a client that speaks the wire."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service import errors
from service.broker import Broker
from service.context import Context
from service.database.engine import open_engine
from service.ingest.committer import Committer
from service.ingest.endpoints import router as ingest
from service.ingest.segments import run_uuid
from service.series.endpoints import router as series
from service.settings import Settings

NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def create_store(settings: Settings) -> FastAPI:
    """Ingest and series on one database, without pages and workers."""
    engine = open_engine(settings.database_url)
    broker = Broker()
    committer = Committer(engine, broker)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        committer.start()
        yield
        committer.stop()
        engine.dispose()

    app = FastAPI(lifespan=lifespan)
    app.state.context = Context(settings, engine, committer, broker)
    errors.install(app)
    for router in (ingest, series):
        app.include_router(router, prefix="/api/v1")
    return app


def wire(values: list[float | None]) -> list[float | str | None]:
    """Values as JSON carries them."""
    return [None if value is None else NON_FINITE.get(str(value), value) for value in values]


class Store:
    """A run's hook and reader. `http` is any httpx client."""

    def __init__(self, http: httpx.Client | TestClient, project: str | None = None) -> None:
        self.http = http
        self.project = project or f"project-{uuid.uuid4()}"
        self.seq = 0

    def run(self, name: str = "run") -> str:
        return str(run_uuid(self.project, name, "stage1"))

    def start(self, name: str = "run", *, segment: str | None = None, **fields: Any) -> str:
        """PUT a segment; returns its id."""
        segment = segment or str(uuid.uuid4())
        now = time.time()
        body = {
            "process": 0,
            "seq": 0,
            "sent_at": now,
            "project": self.project,
            "run": name,
            "role": "reproduction",
            "reference": None,
            "stage": "stage1",
            "kind": "trainer",
            "start_step": 0,
            "tokens_per_step": 10,
            "started_at": now,
            "topology": {"hosts": 1},
            "config": {},
            "versions": {},
            "sample_rows": 1,
        } | fields
        answer = self.http.put(f"/api/v1/segments/{segment}", json=body)
        assert answer.status_code == 202, answer.text
        return segment

    def post(self, segment: str, kind: str, /, **body: Any) -> httpx.Response:
        """POST with the next number, unless `seq` is given."""
        self.seq += 1
        full = {"process": 0, "seq": self.seq, "sent_at": time.time()} | body
        return self.http.post(f"/api/v1/segments/{segment}/{kind}", json=full)

    def batch(
        self, segment: str, steps: list[int], metrics: dict[str, list[float | None]], **body: Any
    ) -> httpx.Response:
        """POST a batch of Python floats."""
        columns = {name: wire(values) for name, values in metrics.items()}
        return self.post(
            segment, "batches", **{"steps": steps, "times": [1.0 * step for step in steps], "metrics": columns} | body
        )

    def read(self, *metrics: str, run: str = "run", **query: Any) -> dict[str, Any]:
        """The series endpoint's JSON."""
        answer = self.http.get(f"/api/v1/runs/{self.run(run)}/series", params={"metric": list(metrics), **query})
        assert answer.status_code == 200, answer.text
        series: dict[str, Any] = answer.json()["series"]
        return series
