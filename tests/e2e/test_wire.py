"""The examples of docs/wire.md, sent as they stand to a real service, are taken; what it forbids is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.conftest import ServiceProcess

TEXT = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
SEGMENT = "6f9619ff-8b86-4d01-b42d-00c04fc964ff"  # the weights_segment of the batches


def examples() -> Iterator[tuple[str, str]]:
    """(kind of request, body) of every JSON block, in order."""
    for block in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL):
        decoder, at = json.JSONDecoder(), 0
        while at < len(block.rstrip()):
            _, end = decoder.raw_decode(block, at)
            yield kind_of(json.loads(block[at:end])), block[at:end]
            at = end + len(block[end:]) - len(block[end:].lstrip())


def kind_of(body: dict[str, Any]) -> str:
    keys = {"run": "segment", "metrics": "batches", "hashes": "fingerprints", "correct": "items", "value": "events"}
    return next((kind for key, kind in keys.items() if key in body), "finish")


def test_the_page_is_what_the_service_takes(service: ServiceProcess) -> None:
    sent = list(examples())
    kinds = ["segment", "batches", *["fingerprints"] * 3, "items", "events", "finish"]
    assert [kind for kind, _ in sent] == kinds
    for again in (False, True):
        for kind, body in sent:
            path = f"{service.url}/api/v1/segments/{SEGMENT}" + (f"/{kind}" if kind != "segment" else "")
            answer = httpx.request(
                "PUT" if kind == "segment" else "POST",
                path,
                content=body.encode(),
                headers={"Content-Type": "application/json"},
                timeout=30,
            )
            assert answer.status_code == 202, answer.text
            assert answer.json()["duplicate"] is again
    (run,) = service.get("/runs", project="olmo3-7b", role="reproduction")["items"]
    assert re.search(r"it is\s+`([0-9a-f-]{36})`", TEXT)[1] == run["id"]  # type: ignore[index]
    series = service.get(f"/runs/{run['id']}/series", metric="train/ce_loss", superseded=True)["series"]
    assert [entry["steps"] for entry in series.values()] == [[101, 102]]

    # What the page forbids is refused.
    url = f"{service.url}/api/v1/segments/{SEGMENT}"
    batch = json.loads(dict(sent)["batches"]) | {"eval_sets": {}}
    for name in ("", "a\0b", "é" * 129, "axis/time", "axis/tokens"):
        answer = httpx.post(f"{url}/batches", json=batch | {"metrics": {name: [1, 2]}}, timeout=30)
        assert answer.status_code == 422, name
    for step, status in ((2**53, 422), (2**53 - 1, 202)):
        answer = httpx.post(f"{url}/batches", json=batch | {"seq": 8, "steps": [step, 1]}, timeout=30)
        assert answer.status_code == status
