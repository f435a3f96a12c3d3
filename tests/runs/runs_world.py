"""Shorthands for the API: sends what a hook would send, reads what a page would read."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID, uuid4

from fastapi.testclient import TestClient

from service.ingest.segments import run_uuid


class Api:
    """Sends what a hook would send, reads what a page would read."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self._seq = 0

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        answer = self.client.get(f"/api/v1{path}", params={k: v for k, v in query.items() if v is not None})
        assert answer.status_code == status, answer.text
        return answer.json()

    def start(self, run: str, *, project: str = "p", start_step: int = 0, **more: Any) -> tuple[UUID, UUID]:
        """Open a trainer segment; returns (run, segment)."""
        segment = uuid4()
        body: dict[str, Any] = {
            "process": 0,
            "seq": 0,
            "sent_at": time.time(),
            "project": project,
            "run": run,
            "role": "reproduction",
            "reference": None,
            "stage": "stage1",
            "kind": "trainer",
            "start_step": start_step,
            "start_tokens": None,
            "tokens_per_step": 512,
            "ramp": None,
            "forked_from": None,
            "topology": {"hosts": 1},
            "config": {"lr": 0.1},
            "versions": {"python": "3.11"},
            "data": None,
            "sample_rows": 1,
            "started_at": time.time(),
        } | more
        answer = self.client.put(f"/api/v1/segments/{segment}", json=body)
        assert answer.status_code == 202, answer.text
        return run_uuid(project, run, body["stage"]), segment

    def post(self, segment: UUID, kind: str, /, **body: Any) -> None:
        sent = {"process": 0, "seq": self._seq, "sent_at": time.time()} | body
        self._seq += 1
        answer = self.client.post(f"/api/v1/segments/{segment}/{kind}", json=sent)
        assert answer.status_code == 202, answer.text

    def log(self, segment: UUID, steps: list[int], metric: str, values: list[Any]) -> None:
        self.post(segment, "batches", steps=steps, times=[time.time()] * len(steps), metrics={metric: values})
