"""What the API says about projects, runs and events, on both databases."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from runs_world import Api
from sqlalchemy import Engine, event

from service.context import Context
from service.database.engine import writing
from service.database.models import Alert, RunWork, VerdictRow
from service.references.bundle import load_bundle
from service.references.repository import ReferenceRepository
from service.references.shipped import BUNDLES
from service.runs.repository import RunRepository


def context_of(client: TestClient) -> Context:
    return client.app.state.context  # type: ignore[attr-defined]


@pytest.fixture
def olmo(client: TestClient) -> None:
    """The reference olmo3-7b, installed."""
    with writing(context_of(client).engine) as session:
        ReferenceRepository(session).install(load_bundle(BUNDLES / "olmo3-7b"))


def test_an_empty_service(api: Api) -> None:
    assert api.get("/projects") == {"items": []}
    assert api.get("/runs") == {"items": [], "next_cursor": None}
    assert api.get("/references") == {"items": []}


def test_a_run_as_it_grows(api: Api, olmo: None) -> None:
    run, segment = api.start("mine", project="olmo3-7b", reference="olmo3-7b", tokens_per_step=4_194_304)
    before = time.time()
    api.log(segment, [1, 2, 14_138], "train/ce_loss", [3.5, "NaN", 2.5])
    found = api.get(f"/runs/{run}")
    assert (found["id"], found["project"], found["name"], found["role"]) == (
        str(run),
        "olmo3-7b",
        "mine",
        "reproduction",
    )
    assert (found["last_step"], found["last_tokens"]) == (14_138, 14_138 * 4_194_304)
    assert found["progress"]["steps_percent"] == pytest.approx(1.0, abs=1e-3)
    assert found["progress"]["tokens_percent"] == pytest.approx(1.0, abs=1e-3)
    assert found["progress"]["stage_steps"] == 1_413_814
    assert found["metrics"] == ["train/ce_loss"]
    assert 0 <= found["age_seconds"] < 60
    at = datetime.fromisoformat(found["last_data_at"])
    assert found["last_data_at"].endswith("Z")
    assert at.timestamp() >= before - 1
    assert found["compared_with"]["slug"] == "olmo3-7b"
    assert found["compared_with"]["primary_heldout"] == "heldout/c4_en/ce_loss"
    assert found["compared_with"]["published_tasks"] is False
    reference_run = api.get(f"/runs/{found['compared_with']['run']}")
    assert (reference_run["role"], reference_run["stage"]) == ("reference", "stage1")
    assert reference_run["compared_with"] is None
    assert (found["verdict"], found["verdict_detail"], found["open_alerts"]) == (None, None, 0)


def test_segments_live_and_superseded(api: Api) -> None:
    now = time.time()
    run, first = api.start("mine", started_at=now - 100)
    api.log(first, [1, 2, 3, 4], "train/ce_loss", [4.0, 3.0, 2.0, 1.0])
    _, second = api.start("mine", start_step=2, started_at=now - 50, topology={"hosts": 4})
    _, third = api.start("mine", start_step=0, started_at=now - 200)
    found = {entry["id"]: entry for entry in api.get(f"/runs/{run}")["segments"]}
    assert [entry["id"] for entry in api.get(f"/runs/{run}")["segments"]] == [str(third), str(first), str(second)]
    assert found[str(first)]["live_to_step"] == 2
    assert not found[str(first)]["superseded"]
    assert found[str(second)]["live_to_step"] is None
    assert found[str(second)]["topology"] == {"hosts": 4}
    assert found[str(third)]["superseded"]
    api.post(second, "finish", at=now)
    finished = {entry["id"]: entry["finished_at"] for entry in api.get(f"/runs/{run}")["segments"]}
    assert finished[str(second)] is not None
    assert finished[str(first)] is None


def test_live_segments(api: Api, client: TestClient) -> None:
    now = time.time()
    run, first = api.start("mine", started_at=now - 200)
    _, second = api.start("mine", start_step=0, started_at=now - 100)
    with writing(context_of(client).engine) as session:
        repository = RunRepository(session)
        row = repository.by_uuid(run)
        assert row is not None
        assert [segment.uuid for segment in repository.live_segments(row.id)] == [second]
        assert repository.by_uuid(first) is None


def test_verdict_alerts_and_judged_version(api: Api, client: TestClient) -> None:
    run, segment = api.start("mine")
    api.log(segment, [1], "train/ce_loss", [4.0])
    now = time.time()
    with writing(context_of(client).engine) as session:
        row = RunRepository(session).by_uuid(run)
        assert row is not None
        session.add(VerdictRow(run_id=row.id, state="drifting", body={"because": "x"}, decided_at=now))
        session.merge(RunWork(run_id=row.id, task="judge", done_version=7, done_at=now))
        for state in ("firing", "acknowledged", "resolved"):
            alert = Alert(uuid=uuid4(), run_id=row.id, family="stability", state=state, severity="info", title="t")
            alert.rules, alert.judgements, alert.opened_at, alert.opened_step, alert.updated_at = [], {}, now, 1, now
            session.add(alert)
    found = api.get(f"/runs/{run}")
    assert (found["verdict"], found["open_alerts"], found["judged_version"]) == ("drifting", 2, 7)
    assert found["verdict_detail"]["body"] == {"because": "x"}
    assert api.get("/runs")["items"][0]["verdict"] == "drifting"


def test_filters_and_projects(api: Api, olmo: None) -> None:
    api.start("a", project="olmo3-7b")
    api.start("b", project="other")
    assert {item["name"] for item in api.get("/runs", project="other")["items"]} == {"b"}
    assert {item["name"] for item in api.get("/runs", role="reference")["items"]} == {"olmo3-7b@1"}
    assert {item["name"] for item in api.get("/runs", role="reproduction")["items"]} == {"a", "b"}
    assert api.get("/runs", project="nothing")["items"] == []
    projects = {item["slug"]: (item["references"], item["reproductions"]) for item in api.get("/projects")["items"]}
    assert projects == {"olmo3-7b": (2, 1), "other": (0, 1)}


@pytest.mark.parametrize(("runs", "limit"), [(5, 2), (4, 2), (1, 1), (3, 10)])
def test_pages_are_whole_and_never_empty(api: Api, runs: int, limit: int) -> None:
    names = [f"run-{number}" for number in range(runs)]
    for name in names:
        api.start(name)
    seen: list[str] = []
    cursor = None
    while True:
        page = api.get("/runs", limit=limit, cursor=cursor)
        assert page["items"]
        seen += [item["name"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == names[::-1]


def test_the_list_reads_state_tables_only(api: Api, client: TestClient) -> None:
    _, segment = api.start("mine")
    api.log(segment, [1, 2], "train/ce_loss", [4.0, 3.0])
    statements: list[str] = []
    engine: Engine = context_of(client).engine

    def record(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", record)
    assert len(api.get("/runs")["items"]) == 1
    event.remove(engine, "before_cursor_execute", record)
    assert statements
    assert not [s for s in statements if any(f"FROM {table}" in s for table in ("journal", "chunk", "segment"))]


def test_events_by_step(api: Api) -> None:
    run, segment = api.start("mine")
    api.post(segment, "events", step=20, kind="note", value={"text": "hello"}, at=1_700_000_000.25)
    api.post(segment, "events", step=10, kind="checkpoint", value="gs://b/10", at=1_700_000_001.0)
    api.post(segment, "events", step=20, kind="note", value=None, at=1_700_000_002.0)
    page = api.get(f"/runs/{run}/events", limit=2)
    assert [(item["step"], item["value"]) for item in page["items"]] == [(10, "gs://b/10"), (20, {"text": "hello"})]
    assert page["items"][1]["at"].startswith("2023-11-14T22:13:20."), "corrected by the clock offset alone"
    assert page["items"][0]["segment"] == str(segment)
    rest = api.get(f"/runs/{run}/events", limit=2, cursor=page["next_cursor"])
    assert [item["value"] for item in rest["items"]] == [None]
    assert rest["next_cursor"] is None


def test_what_is_not_there_or_not_well_asked(api: Api) -> None:
    unknown = uuid4()
    for path in (f"/runs/{unknown}", f"/runs/{unknown}/events", "/references/none"):
        problem = api.get(path, status=404)
        assert problem["status"] == 404
        assert problem["detail"]
    assert api.get("/runs/none", status=422)["errors"][0]["field"] == "path.run_id"
    assert api.get("/runs", status=422, cursor="!!")["errors"][0]["field"] == "query.cursor"
    assert api.get("/runs", status=422, cursor="WzFd")["errors"][0]["field"] == "query.cursor"
    assert api.get("/runs", status=422, limit=0)["errors"][0]["field"] == "query.limit"
    assert api.get("/runs", status=422, role="boss")["errors"][0]["field"] == "query.role"


def test_a_reference_in_full(api: Api, olmo: None) -> None:
    found = api.get("/references/olmo3-7b")
    assert [stage["name"] for stage in found["stages"]] == ["stage1", "stage2", "stage3"]
    assert {task["published"] for task in found["tasks"]} == {False}
    assert len(found["tasks"]) == 8
    assert found["tolerance"]["train/ce_loss"]["value"] == 0.015
    assert found["source"]["url"].startswith("https://wandb.ai/ai2-llm/")
    assert found["conflicts"]
    assert {(c["stage"], c["sibling"]) for c in found["curves"]} == {("stage1", ""), ("stage2", "")}
    assert found["schedule"][0]["formula"].startswith("s < w")
    values = found["schedule_values"][0]
    at = dict(zip(values["steps"], values["values"], strict=True))
    assert at[597_046] == pytest.approx(1.65e-4, rel=1e-5)
    assert at[1_413_814] == pytest.approx(3.9325e-5, rel=1e-4)
    assert api.get("/references/olmo3-7b", version="1")["digest"] == found["digest"]
    assert "version 9" in api.get("/references/olmo3-7b", status=404, version="9")["detail"]


def test_segments_of_a_reference_without_launch_times(api: Api, olmo: None) -> None:
    curves = {c["stage"]: c["run"] for c in api.get("/references/olmo3-7b")["curves"]}
    first, second = (api.get(f"/runs/{curves[stage]}") for stage in ("stage1", "stage2"))
    assert first["segments"][0]["started_at"] == "2025-07-21T06:03:59.000Z"
    assert [segment["started_at"] for segment in second["segments"]] == [None, None, None]
    assert [segment["config"]["segment"] for segment in second["segments"]] == ["j9nypgrc", "zxv811e1", "ycefe7k4"]
    assert not any(segment["superseded"] for segment in first["segments"])


def test_bundles_are_where_the_service_looks() -> None:
    assert Path(BUNDLES).is_dir()
