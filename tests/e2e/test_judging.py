"""Settings and rewinds in a real service: kept over kill -9, heeded at once, taken back when points are."""

from __future__ import annotations

import time
import uuid
from typing import Any

import httpx

from service.database.engine import open_engine, reading
from service.references.repository import ReferenceRepository
from service.series.repository import SeriesRepository
from tests.e2e.conftest import ServiceProcess

TRAIN = "train/ce_loss"


def curve(database_url: str) -> dict[int, float]:
    """The lab's reference, step by step."""
    engine = open_engine(database_url)
    with reading(engine) as session:
        repository = ReferenceRepository(session)
        reference = repository.current("lab")
        assert reference is not None
        run = repository.run_of(reference.id, "stage1")
        assert run is not None
        points = SeriesRepository(session).read(run.id, [TRAIN])[TRAIN]
    engine.dispose()
    return dict(zip(points.steps.tolist(), points.values.tolist(), strict=True))


class Trainer:
    """One trainer start, as the hook would send it."""

    def __init__(self, service: ServiceProcess, start_step: int) -> None:
        self.service, self.id, self.seq = service, str(uuid.uuid4()), 0
        now = time.time()
        body = {
            "process": 0, "seq": 0, "sent_at": now, "project": "lab", "run": "rewound", "role": "reproduction",
            "reference": "lab", "stage": "stage1", "kind": "trainer", "start_step": start_step, "start_tokens": None,
            "tokens_per_step": 1024, "ramp": None, "forked_from": None, "topology": {"hosts": 1}, "config": {},
            "versions": {}, "data": None, "sample_rows": 1, "started_at": now,
        }  # fmt: skip
        assert httpx.put(f"{service.url}/api/v1/segments/{self.id}", json=body).status_code < 300

    def log(self, values: dict[int, float]) -> None:
        body = {
            "process": 0, "seq": self.seq, "sent_at": time.time(), "steps": list(values),
            "times": [time.time()] * len(values), "metrics": {TRAIN: list(values.values())},
        }  # fmt: skip
        self.seq += 1
        assert httpx.post(f"{self.service.url}/api/v1/segments/{self.id}/batches", json=body).status_code == 202


def until(service: ServiceProcess, holds: Any, path: str, **parameters: Any) -> Any:
    """The first answer for which `holds`; the service's own worker is what is waited for."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = service.get(path, **parameters)
        if holds(answer):
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{path}: {answer}")


def test_a_drift_a_setting_a_kill_and_a_rewind(service: ServiceProcess, database_url: str) -> None:
    base = curve(database_url)
    trainer = Trainer(service, 0)
    trainer.log({step: base[step] - (0.9 if step > 200 else 0.0) for step in range(1, 301)})
    (alert,) = until(service, lambda a: a["items"], "/alerts")["items"]
    assert "train_drift" in alert["rules"]
    run = alert["run"]

    setting = {"tolerance": 0.3, "unit": "nats", "by": "Ann", "reason": "other shuffle"}
    path = f"/runs/{run}/rules/train_drift"
    assert httpx.put(f"{service.url}/api/v1{path}", json=setting).status_code == 200
    service.kill()
    service.start()
    found = until(service, lambda a: a["limit"] == 0.3, path)
    assert found["limit_source"].startswith("set by Ann for this run: other shuffle; shipped: ")
    assert [c["by"] for c in service.get(f"/runs/{run}/rules/history")["items"]] == ["Ann"]
    assert service.get("/alerts", state="open")["items"], "still a drift"

    again = Trainer(service, 150)
    detail = until(service, lambda a: a["state"] == "resolved", f"/alerts/{alert['id']}")
    last = detail["changes"][-1]
    assert (last["kind"], last["body"]["reason"]) == (
        "resolved", f"superseded from step 150 by segment {again.id}",
    )  # fmt: skip
    again.log({step: base[step] for step in range(151, 301)})
    until(service, lambda a: a["judged_version"] >= a["data_version"], f"/runs/{run}")
    assert service.get("/alerts", state="open")["items"] == []
    assert service.get(f"/runs/{run}/recovery")["needed"] is False
