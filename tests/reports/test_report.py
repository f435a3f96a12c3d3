"""The report of a run: what it holds, its forms, its digest."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from fastapi.testclient import TestClient
from judged_world import TRAIN, JudgedWorld

from service.database.engine import reading
from service.database.models import Run
from service.judgements.view import reference_view
from service.reports.document import Report, ReportError, digest_of, from_json, is_unchanged, json_schema, to_json
from service.reports.html import from_html, style, to_html
from service.reports.markdown import to_markdown
from service.reports.words import NOTHING, pairs

HELDOUT = "heldout/lab/ce_loss"
NAME = '<script>alert("1")</script> | `x` @someone 🚀 ' + "é" * 80
once = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing in it depends on which
DOCS = Path(__file__).parents[2] / "docs"


def laid_over(world: JudgedWorld, name: str = NAME, sunk: float = 0.9, *, judged: bool = True) -> UUID:
    """A run that follows the reference and sinks from step 200 on; its held-out loss does not."""
    run_id = world.run(name)
    with reading(world.engine) as session:
        run = session.get_one(Run, run_id)
        metrics = reference_view(session, run).metrics
        uuid = run.uuid
    train, held = metrics[TRAIN], metrics[HELDOUT]
    world.points(run_id, train.steps.tolist(), (train.values - sunk * (train.steps > 200)).tolist())
    world.points(run_id, held.steps.tolist(), held.values.tolist(), HELDOUT)
    for metric in sorted(m for m in metrics if m.startswith("downstream/")):
        world.points(run_id, metrics[metric].steps.tolist(), metrics[metric].values.tolist(), metric)
    if judged:
        world.judge(None).judge_run(run_id)
    return uuid


def read(client: TestClient, run: UUID, **params: str) -> Report:
    answer = client.get(f"/runs/{run}/report", params=params)
    assert answer.status_code == 200, answer.text
    return from_json(answer.content)


def test_it_tells_the_whole_story_and_the_same_bytes_again(client: TestClient, world: JudgedWorld) -> None:
    run = laid_over(world)
    report = read(client, run)
    assert report.verdict.state == "drifting"
    assert report.verdict.current
    assert report.run.name == NAME
    train = next(row for row in report.table if row.metric == TRAIN)
    stands = {c.step: cell.stand for c, cell in zip(report.checkpoints, train.cells, strict=True) if cell}
    assert stands[report.checkpoints[-1].step] == "outside"
    assert next(iter(stands.values())) in ("inside", "cannot tell")
    held = next(row for row in report.table if row.metric == HELDOUT)
    assert all(cell is not None and cell.stand != "outside" for cell in held.cells)
    assert [i.state for i in report.incidents] == ["firing"]
    assert report.incidents[0].onset_steps is not None
    assert report.data.coverage is None
    assert "nothing is said to be fine" in report.data.blind[0]
    assert {chart.key for chart in report.charts} >= {"train", "gap", f"heldout {HELDOUT}", "mean"}
    assert {rule.state for rule in report.rules} == {"yes", "no", "cannot tell"}
    assert report.reference is not None
    assert len(report.reference.digest) == 64
    for kind in ("html", "md", "json"):
        first, again = (client.get(f"/runs/{run}/report", params={"format": kind}) for _ in range(2))
        assert first.content == again.content


class Reading(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@once
def test_the_page_loads_nothing_runs_nothing_and_shows_names_as_text(client: TestClient, world: JudgedWorld) -> None:
    run = laid_over(world)
    answer = client.get(f"/runs/{run}/report", params={"format": "html"})
    page = Reading()
    page.feed(answer.text)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "base", "form", "a"}
    attributes = {(tag, name) for tag, attrs in page.tags for name in attrs}
    assert not [name for _, name in attributes if name.startswith("on") or name in ("src", "href", "style")]
    assert NAME in page.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert [a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv")] == [policy]
    assert f"<style>{style()}</style>" in answer.text


@once
def test_page_and_data_say_whether_they_were_changed(client: TestClient, world: JudgedWorld) -> None:
    report = read(client, laid_over(world))
    page = to_html(report)
    assert from_html(page) == report
    assert to_html(from_html(page)) == page
    assert is_unchanged(from_json(to_json(report)))
    document = json.loads(to_json(report))
    assert document["digest"] == digest_of(document)
    document["verdict"]["state"] = "matching"
    assert not is_unchanged(from_json(json.dumps(document)))


@once
def test_markdown_shows_names_as_text_in_whole_tables(client: TestClient, world: JudgedWorld) -> None:
    text = to_markdown(read(client, laid_over(world)))
    title = text.splitlines()[0]
    assert "\\<script\\>" in title
    assert "\\| \\`x\\` @\u2060someone" in title
    widths: list[int] = []
    for line in text.splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
        elif widths:
            assert len(set(widths)) == 1
            widths = []


@once
def test_checkpoints_that_are_asked_for(client: TestClient, world: JudgedWorld) -> None:
    run = laid_over(world)
    report = read(client, run, at="101,300k")
    assert [(c.step, c.why) for c in report.checkpoints] == [(100, "nearest to 101"), (300, "nearest to 300k")]
    answer = client.get(f"/runs/{run}/report", params={"at": "soon"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "at")
    assert client.get("/runs/00000000-0000-0000-0000-000000000000/report").status_code == 404


def test_without_judgement_reference_or_data_it_says_so(client: TestClient, world: JudgedWorld) -> None:
    report = read(client, laid_over(world, judged=False))
    assert (report.verdict.state, report.verdict.current) == (None, False)
    assert report.verdict.note.startswith("Nothing was judged yet")
    lone = world.run("lone", reference=None)
    world.points(lone, [1, 2, 3], [3.0, float("nan"), 2.5])
    without = world.run("empty")
    with reading(world.engine) as session:
        alone, empty = session.get_one(Run, lone).uuid, session.get_one(Run, without).uuid
    made = read(client, alone)
    assert made.reference is None
    assert made.charts[0].run.spoilt == [1]
    assert made.table == []
    for one in (made, read(client, empty)):
        assert "No alert was raised: nothing was judged" in to_html(one)
        assert "nothing was judged" in to_markdown(one)


@once
def test_data_that_came_after_the_judgement_are_told_of(client: TestClient, world: JudgedWorld) -> None:
    run = laid_over(world, sunk=0.0)
    assert read(client, run).verdict.current
    world.reference_version("another")
    note = read(client, run).verdict.note
    assert "another" in note


@once
def test_a_loss_that_is_not_a_number_is_outside(client: TestClient, world: JudgedWorld) -> None:
    run_id = world.run("nan")
    with reading(world.engine) as session:
        run = session.get_one(Run, run_id)
        held, uuid = reference_view(session, run).metrics[HELDOUT], run.uuid
    values = held.values.copy()
    values[-1] = np.nan
    world.points(run_id, held.steps.tolist(), values.tolist(), HELDOUT)
    cells = next(row for row in read(client, uuid).table if row.metric == HELDOUT).cells
    assert cells[-1] is not None
    assert (cells[-1].run, cells[-1].stand) == ("NaN", "outside")


def test_a_table_in_one_line_leaves_out_what_is_not_known() -> None:
    assert pairs({"hosts": 2, "devices": None, "device_kind": None}) == "hosts 2"
    assert pairs({"devices": None}) == pairs({}) == NOTHING


def test_the_documented_schema_is_the_one_that_is_written() -> None:
    assert json.loads((DOCS / "report.schema.json").read_text()) == json_schema()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "pacenote-report/9"}', '{"schema": "pacenote-report/1"}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ReportError):
        from_json(text)
    with pytest.raises(ReportError):
        from_html(text)
