"""Settings over HTTP: what counts, who set it, what it was, and what cannot be set."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from judged_world import TRAIN, JudgedWorld

from service.database.engine import reading
from service.database.models import Run
from service.detect.engine import FAMILY_OF_RULE
from service.judgements.view import reference_view
from service.rules.effective import settings_of
from service.rules.reading import settings_in_force

ANN = {"by": "Ann", "reason": "no global shuffle"}
NOBODY = "00000000-0000-0000-0000-000000000000"


def uuid_of(world: JudgedWorld, run: int) -> UUID:
    with reading(world.engine) as session:
        return session.get_one(Run, run).uuid


def drifting(world: JudgedWorld, by: float = -0.8) -> tuple[int, UUID]:
    run = world.run()
    with reading(world.engine) as session:
        series = reference_view(session, session.get_one(Run, run)).metrics[TRAIN]
    world.points(run, series.steps.tolist(), (series.values + by).tolist())
    return run, uuid_of(world, run)


def test_every_rule_is_listed_as_shipped(client: TestClient, world: JudgedWorld) -> None:
    run = uuid_of(world, world.run())
    for path in (f"/runs/{run}/rules", "/projects/lab/rules"):
        found = client.get(path).json()
        assert [item["rule"] for item in found["items"]] == list(FAMILY_OF_RULE)
        assert all(item["tolerance"] is None and item["here"] is None for item in found["items"])
    units = {item["rule"]: item["unit"] for item in found["items"]}
    assert (units["train_drift"], units["downstream"], units["plateau"]) == ("nats", "accuracy", None)


def test_the_runs_part_goes_before_the_projects_and_a_reset_gives_it_back(
    client: TestClient, world: JudgedWorld
) -> None:
    run, other = uuid_of(world, world.run("a")), uuid_of(world, world.run("b"))
    project = {"tolerance": 0.03, "minimum_evidence": 50, **ANN}
    assert client.put("/projects/lab/rules/train_drift", json=project).status_code == 200
    said = client.put(f"/runs/{run}/rules/train_drift", json={"tolerance": 0.02, "unit": "nats", **ANN}).json()
    assert said["tolerance"] == {
        "value": 0.02, "scope": "run", "source": "set by Ann for this run: no global shuffle", "until": None,
    }  # fmt: skip
    assert (said["minimum_evidence"]["value"], said["minimum_evidence"]["scope"]) == (50, "project")
    assert client.get(f"/runs/{other}/rules/train_drift").json()["tolerance"]["value"] == 0.03
    back = client.delete(f"/runs/{run}/rules/train_drift", params={"by": "Bo"}).json()
    assert (back["tolerance"]["value"], back["here"]) == (0.03, None)
    assert client.delete(f"/runs/{run}/rules/train_drift", params={"by": "Bo"}).status_code == 404


def test_every_change_is_recorded_and_the_same_again_is_none(client: TestClient, world: JudgedWorld) -> None:
    run = uuid_of(world, world.run())
    path = f"/runs/{run}/rules/train_drift"
    for body in ({"tolerance": 0.02}, {"tolerance": 0.02}, {"muted": True, "muted_until": "2030-01-01T00:00:00Z"}):
        assert client.put(path, json=body | ANN).status_code == 200
    client.delete(path, params={"by": "Bo", "reason": "over"})
    client.put("/projects/lab/rules/plateau", json={"enabled": False, **ANN})
    items = client.get(f"/runs/{run}/rules/history").json()["items"]
    assert [(i["subject"], i["by"], i["reason"]) for i in items] == [
        ("plateau", "Ann", "no global shuffle"), ("train_drift", "Bo", "over"),
        ("train_drift", "Ann", "no global shuffle"), ("train_drift", "Ann", "no global shuffle"),
    ]  # fmt: skip
    assert items[0]["run"] is None
    assert items[1]["new"] is None
    assert (items[2]["old"]["tolerance"], items[2]["new"]["tolerance"]) == (0.02, None)
    assert items[2]["new"]["muted_until"] == "2030-01-01T00:00:00.000Z"
    assert items[3]["old"] is None
    only = client.get(f"/runs/{run}/rules/history", params={"rule": "train_drift", "limit": 2}).json()
    assert [i["number"] for i in only["items"]] == [i["number"] for i in items[1:3]]
    rest = client.get(
        f"/runs/{run}/rules/history", params={"rule": "train_drift", "cursor": only["next_cursor"]}
    ).json()
    assert [i["number"] for i in rest["items"]] == [items[3]["number"]]
    assert [i["subject"] for i in client.get("/projects/lab/rules/history").json()["items"]] == ["plateau"]


@pytest.mark.parametrize(
    ("rule", "body", "status", "says"),
    [
        ("train_drift", {"tolerance": 0}, 422, "greater than 0"),
        ("train_drift", {"tolerance": -0.02}, 422, "greater than 0"),
        ("train_drift", {"tolerance": "NaN"}, 422, "tolerance"),
        ("train_drift", {"tolerance": 0.02, "unit": "accuracy"}, 422, "is in nats, not in accuracy"),
        ("train_only_drift", {"tolerance": 0.02}, 422, "has no tolerance of its own; these have: train_drift (nats)"),
        ("downstream", {"tolerance": 1.5}, 422, "at most 1 accuracy"),
        ("repeated_rows", {"tolerance": 0.5}, 422, "at most 0.1 share"),
        ("train_drift", {"minimum_evidence": 0}, 422, "minimum_evidence"),
        ("train_drift", {"muted_until": "2030-01-01T00:00:00Z"}, 422, "muted_until"),
        ("train_drift", {"muted": True, "muted_until": "2030-01-01T00:00:00"}, 422, "timezone"),
        ("train_drift", {}, 422, "sets nothing"),
        ("train_drift", {"colour": "red"}, 422, "colour"),
        ("train_drift", {"tolerance": 0.02, "reason": ""}, 422, "reason"),
        ("train_drift", {"tolerance": 0.02, "by": "A\x00"}, 422, "NUL"),
        ("horoscope", {"tolerance": 0.02}, 404, "There is no rule horoscope; there are train_drift"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_cannot_be_set_is_refused_and_leaves_no_trace(
    client: TestClient, world: JudgedWorld, rule: str, body: dict[str, Any], status: int, says: str
) -> None:
    run = uuid_of(world, world.run())
    answer = client.put(f"/runs/{run}/rules/{rule}", json=ANN | body)
    assert answer.status_code == status
    assert says in answer.json()["detail"]
    assert client.get(f"/runs/{run}/rules/history").json()["items"] == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_unknown_runs_and_projects_are_named(client: TestClient, world: JudgedWorld) -> None:
    for path in (f"/runs/{NOBODY}/rules", "/projects/nothing/rules", f"/runs/{NOBODY}/rules/history"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.json()["detail"].startswith("There is no ")
    assert client.put(f"/runs/{NOBODY}/rules/train_drift", json={"tolerance": 1, **ANN}).status_code == 404


def test_a_setting_in_force_shows_beside_the_answer_it_was_judged_by(client: TestClient, world: JudgedWorld) -> None:
    run, uuid = drifting(world, -0.3)
    client.put(f"/runs/{uuid}/rules/train_drift", json={"tolerance": 0.25, **ANN})
    world.judge(None).judge_run(run)
    found = client.get(f"/runs/{uuid}/rules/train_drift").json()
    assert (found["state"], found["limit"]) == ("yes", 0.25)
    assert found["limit_source"].startswith("set by Ann for this run: no global shuffle; shipped: ")
    gap = client.get(f"/runs/{uuid}/gap").json()
    assert gap["tolerance"]["value"] == 0.25
    assert gap["tolerance"]["source"].startswith("set by Ann for this run")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestPreview:
    def test_it_says_what_a_setting_would_have_raised_and_saves_nothing(
        self, client: TestClient, world: JudgedWorld
    ) -> None:
        _, uuid = drifting(world)
        body = {"rule": "train_drift", "tolerance": 3.0, "unit": "nats", "every": 20}
        found = client.post(f"/runs/{uuid}/rules/preview", json=body).json()
        assert [s["rule"] for s in found["before"] if s["rule"] == "train_drift"] == ["train_drift"]
        assert [s for s in found["after"] if s["rule"] == "train_drift"] == []
        assert found["every"] == 20
        (line,) = [c for c in found["changes"] if c.startswith("train_drift:")]
        assert line.startswith("train_drift: said yes from step ")
        assert line.endswith("; would have said yes never")
        assert client.get(f"/runs/{uuid}/rules/history").json()["items"] == []
        assert client.get(f"/runs/{uuid}/judgements").json()["items"] == []

    def test_it_tells_exactly_what_is_judged_once_it_is_set(self, client: TestClient, world: JudgedWorld) -> None:
        run, uuid = drifting(world, -0.3)
        tried = client.post(
            f"/runs/{uuid}/rules/preview", json={"rule": "train_drift", "tolerance": 0.05, "every": 40}
        ).json()
        client.put(f"/runs/{uuid}/rules/train_drift", json={"tolerance": 0.05, **ANN})
        again = client.post(
            f"/runs/{uuid}/rules/preview", json={"rule": "train_drift", "tolerance": 0.05, "every": 40}
        ).json()
        spans = [[(s["rule"], s["from_step"], s["to_step"]) for s in side] for side in (
            tried["after"], again["before"], again["after"],
        )]  # fmt: skip
        assert spans[0] == spans[1] == spans[2]
        assert again["changes"] == ["Nothing would have changed, at looks 40 steps apart."]
        world.judge(None).judge_run(run)
        yes = {i["rule"] for i in client.get(f"/runs/{uuid}/judgements").json()["items"] if i["state"] == "yes"}
        assert yes == {rule for rule, _, to in spans[0] if to is None}

    def test_what_cannot_be_tried(self, client: TestClient, world: JudgedWorld) -> None:
        _, uuid = drifting(world)
        empty = uuid_of(world, world.run("empty"))
        cases: list[tuple[UUID, dict[str, Any], int, str]] = [
            (uuid, {"rule": "train_drift"}, 422, "sets nothing"),
            (uuid, {"rule": "plateau", "tolerance": 1.0}, 422, "no tolerance of its own"),
            (uuid, {"rule": "horoscope", "tolerance": 1.0}, 404, "There is no rule"),
            (empty, {"rule": "train_drift", "tolerance": 1.0}, 404, "There is nothing to judge"),
        ]
        for run, body, status, says in cases:
            answer = client.post(f"/runs/{run}/rules/preview", json=body)
            assert (answer.status_code, says in answer.json()["detail"]) == (status, True), answer.text


def test_what_share_of_text_repeats_naturally_is_a_limit_of_its_own(client: TestClient, world: JudgedWorld) -> None:
    run = uuid_of(world, world.run())
    said = client.put("/projects/lab/rules/repeated_text", json={"tolerance": 0.3, "unit": "share", **ANN}).json()
    assert (said["family"], said["unit"], said["tolerance"]["value"]) == ("curve_and_data", "share", 0.3)
    listed = client.get(f"/runs/{run}/rules").json()["items"]
    assert [item["rule"] for item in listed] == [*FAMILY_OF_RULE, "repeated_text"]
    with reading(world.engine) as session:
        settings = settings_of(settings_in_force(session, session.query(Run).filter_by(uuid=run).one()))
    assert settings["repeated_text"].tolerance == 0.3
    for body, detail in (
        ({"muted": True}, "repeated_text is a limit of repeated_rows and has a tolerance alone; set the rest there"),
        ({"tolerance": 0.81}, "that of repeated_text is at most 0.8 share, not 0.81"),
    ):
        refused = client.put(f"/runs/{run}/rules/repeated_text", json={**body, **ANN})
        assert (refused.status_code, refused.json()["errors"][0]["detail"]) == (422, detail)
    assert client.delete("/projects/lab/rules/repeated_text", params={"by": "Bo"}).json()["tolerance"] is None
