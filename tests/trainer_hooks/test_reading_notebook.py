"""docs/reading-a-run.ipynb runs against a live service, cell by cell, and is small."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.serving import Serving
from tests.ingest.store_client import Store
from trainer_hooks.client import Client

NOTEBOOK = Path(__file__).parents[2] / "docs" / "reading-a-run.ipynb"
LARGEST_OUTPUT = 2000  # characters


def cells(kind: str) -> list[dict[str, Any]]:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    return [cell for cell in content["cells"] if cell["cell_type"] == kind]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    serving = Serving(tmp_path)
    try:
        with httpx.Client(base_url=serving.url) as http:
            store = Store(http, "lab")
            segment = store.start("mine", reference="lab", tokens_per_step=1024, data={"rows": 400, "epochs": 1})
            client = Client(serving.url, "")
            curve = next(one["run"] for one in client.reference("lab")["curves"] if not one["sibling"])
            wide = client.series(curve, ["train/ce_loss", "heldout/lab/ce_loss"], to_step=150, wide=True)
            columns = {name: [None if value != value else value for value in wide[name]] for name in wide}
            assert store.batch(segment, wide.index.tolist(), columns).status_code == 202
            rows = [f"{step // 2:016x}" for step in range(150)]
            seen = {"steps": list(range(1, 151)), "hashes": rows, "seen": [[1, 150, 1]]}
            assert store.post(segment, "fingerprints", kind="rows", host=0, sample=1, **seen).status_code == 202
            deadline = time.monotonic() + 60
            while not (len(judged := client.alerts(store.run("mine"))) and len(client.judgements(store.run("mine")))):
                assert time.monotonic() < deadline, judged
                time.sleep(0.05)
        yield serving.url
    finally:
        serving.kill()


def test_every_cell_runs(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_URL", served)
    monkeypatch.delenv("PACENOTE_TOKEN", raising=False)
    space: dict[str, Any] = {}
    for number, cell in enumerate(cells("code"), 1):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), space)
    assert space["runs"].loc[space["run"], "name"] == "mine"
    assert space["audit"]["repeats"] == 75
    assert len(space["alerts"]) >= 1
    space["updates"].close()


def test_outputs_are_stored_and_small() -> None:
    code = cells("code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        shown = "".join(text for output in cell["outputs"] for text in output["data"]["text/plain"])
        assert len(shown) < LARGEST_OUTPUT
    assert sum(bool(cell["outputs"]) for cell in code) > len(code) / 2
    assert {cell["id"] for cell in code}.isdisjoint({cell["id"] for cell in cells("markdown")})
