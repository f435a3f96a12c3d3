"""What was found about a run, over HTTP."""

from __future__ import annotations

import math
from uuid import UUID

import numpy as np
import pytest
from fastapi.testclient import TestClient
from judged_world import TRAIN, JudgedWorld

from service.database.engine import reading
from service.database.models import Run
from service.detect.engine import FAMILY_OF_RULE
from service.judgements.view import reference_view

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here depends on which

NOBODY = "00000000-0000-0000-0000-000000000000"


def shifted(world: JudgedWorld, by: float, metric: str = TRAIN, **more: str) -> tuple[int, UUID]:
    """A run whose metric lies beside the reference's by a constant."""
    run_id = world.run(**more)
    with reading(world.engine) as session:
        run = session.get_one(Run, run_id)
        series = reference_view(session, run).metrics[metric]
    world.points(run_id, series.steps.tolist(), (series.values + by).tolist(), metric)
    return run_id, run.uuid


def test_before_the_first_judgement_there_is_nothing_to_say(client: TestClient, world: JudgedWorld) -> None:
    _, run = shifted(world, 0.0)
    assert client.get(f"/runs/{run}/judgements").json() == {"run": str(run), "items": []}
    assert client.get(f"/runs/{run}/verdict").json()["state"] is None


def test_the_shipped_rules_answer_about_a_run_that_is_its_reference(client: TestClient, world: JudgedWorld) -> None:
    run_id, run = shifted(world, 0.0)
    assert world.judge(None).judge_run(run_id)
    items = {item["rule"]: item for item in client.get(f"/runs/{run}/judgements").json()["items"]}
    assert set(items) == set(FAMILY_OF_RULE)
    assert items["train_drift"]["state"] == "no"
    assert items["train_drift"]["judgement"]["limit"] > 0.0
    assert items["repeated_rows"]["state"] == "cannot tell"
    verdict = client.get(f"/runs/{run}/verdict").json()
    assert (verdict["state"], verdict["reference"]) == ("consistent", "lab")
    assert verdict["version"]
    assert client.get("/alerts").json()["items"] == []


def test_a_run_far_below_drifts(client: TestClient, world: JudgedWorld) -> None:
    run_id, run = shifted(world, -0.8)
    world.judge(None).judge_run(run_id)
    assert client.get(f"/runs/{run}/verdict").json()["state"] == "drifting"
    [alert] = client.get("/alerts").json()["items"]
    assert "train_drift" in alert["rules"]


def test_the_gap_of_a_train_metric_comes_in_blocks_with_intervals(client: TestClient, world: JudgedWorld) -> None:
    _, run = shifted(world, -0.25)
    gap = client.get(f"/runs/{run}/gap").json()
    assert (gap["metric"], gap["reference"]) == (TRAIN, "lab")
    assert gap["window_steps"] > 0
    assert gap["tolerance"]["value"] > 0.0
    assert len(gap["gap"]) > 2
    np.testing.assert_allclose(gap["gap"], -0.25, atol=1e-6)
    assert all(low <= value <= high for low, value, high in zip(gap["low"], gap["gap"], gap["high"], strict=True))
    assert gap["first_tokens"][0] == 1024.0 * gap["first_step"][0]
    fewer = client.get(f"/runs/{run}/gap", params={"points": 2}).json()
    assert 1 <= len(fewer["gap"]) <= 2
    assert fewer["window_steps"] % gap["window_steps"] == 0
    normal = gap["normality"]
    assert normal["percentile"] > 99.0
    assert normal["pairs"] >= 1
    assert normal["names"]
    assert 0.0 < normal["largest"] < 0.25
    assert normal["source"]


def test_the_gap_of_evaluations_comes_one_by_one(client: TestClient, world: JudgedWorld) -> None:
    _, run = shifted(world, 0.1, "heldout/lab/ce_loss")
    gap = client.get(f"/runs/{run}/gap", params={"metric": "heldout/lab/ce_loss"}).json()
    assert gap["window_steps"] is None
    assert gap["first_step"] == gap["last_step"]
    np.testing.assert_allclose(gap["gap"], 0.1, atol=1e-9)
    assert gap["normality"]["percentile"] > 99.0


def test_a_metric_that_only_the_run_has_gives_an_empty_gap(client: TestClient, world: JudgedWorld) -> None:
    _, run = shifted(world, 0.0)
    gap = client.get(f"/runs/{run}/gap", params={"metric": "optim/nothing"}).json()
    assert (gap["gap"], gap["first_step"], gap["tolerance"], gap["normality"]) == ([], [], None, None)


def test_values_that_are_none_do_not_spoil_the_gap(client: TestClient, world: JudgedWorld) -> None:
    run_id, run = shifted(world, 0.0)
    world.points(run_id, [10, 11, 12], [math.nan, math.inf, -math.inf])
    assert client.get(f"/runs/{run}/gap").status_code == 200


def test_what_is_not_there_is_404(client: TestClient, world: JudgedWorld) -> None:
    for path in ("judgements", "verdict", "gap"):
        assert client.get(f"/runs/{NOBODY}/{path}").status_code == 404
    run_id = world.run("alone", reference="olmo4")
    with reading(world.engine) as session:
        uuid = session.get_one(Run, run_id).uuid
    answer = client.get(f"/runs/{uuid}/gap")
    assert (answer.status_code, "olmo4" in answer.json()["detail"]) == (404, True)
