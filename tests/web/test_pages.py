"""Every page of a real service on SQLite: what it says, and that names never become markup."""

from __future__ import annotations

import re
import time
from html import unescape
from uuid import UUID

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.web.decoding import decode
from tests.web.world import TRAIN, World

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e\U0001f4a5"
FIGURES = ("loss", "gap", "segments", "heldout", "accuracy", "tasks", "training", "data")


def text_of(html: str) -> str:
    """What a reader sees, in one line."""
    body = html.split("<main", 1)[1].split("</main>", 1)[0]
    return re.sub(r"[ \n\t]+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def test_empty_states_say_what_to_do(client: TestClient) -> None:
    assert "trainer_hooks.start" in text_of(client.get("/").text)
    assert "pacenote channel add" in text_of(client.get("/alerts").text)
    assert "pacenote reference" in text_of(client.get("/references").text)


def test_list_shows_verdict_progress_and_age(incident: World) -> None:
    incident.start("waiting")
    page = incident.client.get("/").text
    text = text_of(page)
    assert f"/runs/{incident.run_id('v7x')}" in page
    assert "Diverged" in text  # held-out rises too
    assert "410k tokens · step 400 · 100.0\u202f%" in text
    assert re.search(r"1 open .*\d\u202fs ago|1 open .*now", text)
    assert "no data yet" in text
    assert "never" in text


def test_list_shows_the_gap(incident: World) -> None:
    incident.start("waiting")
    run = incident.run_id("v7x")
    page = incident.client.get("/").text
    assert re.search(r"−0\.3\d\d ± 0\.0\d\d nats", text_of(page))
    assert "not known yet" in text_of(page)
    address = re.search(rf"/pages/runs/{run}/gap\.svg\?v=\d+", page)
    assert address is not None
    picture = incident.client.get(address.group())
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.text.count("<path") == 3  # nought, the gap, and where it is beyond the tolerance
    waiting = incident.client.get(f"/pages/runs/{incident.run_id('waiting')}/gap.svg").text
    assert waiting.startswith("<svg")
    assert "<path" not in waiting
    assert incident.client.get(f"/pages/runs/{UUID(int=0)}/gap.svg").status_code == 404


def test_list_is_chosen_and_ordered(incident: World) -> None:
    incident.start("waiting")
    incident.start("kept apart", project="q")

    def shown(query: str) -> list[str]:
        return re.findall(r'class="name"[^>]*><bdi>([^<]*)', incident.client.get(f"/{query}").text)

    assert shown("?sort=name") == ["kept apart", "v7x", "waiting"]
    assert shown("?verdict=diverged") == ["v7x"]
    assert shown("?search=WAIT") == ["waiting"]
    assert shown("?project=q") == ["kept apart"]
    assert shown("?sort=nonsense&verdict=nonsense") == ["kept apart", "waiting", "v7x"]
    assert "Show all runs" in text_of(incident.client.get("/?search=nothing+like+it").text)
    address = f"/api/v1/runs/{incident.run_id('v7x')}"
    assert incident.client.patch(address, json={"archived": True}).status_code == 200
    assert shown("") == ["kept apart", "waiting"]
    assert shown("?archived=yes") == ["v7x"]
    kept = incident.client.get("/?search=%22%3E%3Cscript%3E&verdict=drifting").text
    assert "<script>" not in kept.split("<main", 1)[1]
    assert 'value="&#34;&gt;&lt;script&gt;"' in kept


def test_list_is_paged_by_cursor(world: World) -> None:
    for number in range(51):
        world.start(f"run {number:02}")
    first = world.client.get("/").text
    assert "run 50" in first
    assert "run 00" not in first
    older = unescape(re.search(r'rel="next" href="([^"]+)"', first).group(1))  # type: ignore[union-attr]
    assert "run 00" in world.client.get(older).text
    assert world.client.get("/?cursor=nonsense").status_code in (400, 422)


def test_a_list_ordered_by_long_names_is_paged(world: World) -> None:
    for number in range(51):
        world.start(f"{number:02}" + "\U0001f4a5" * 60)
    link = re.search(r'rel="next" href="([^"]+)"', world.client.get("/?sort=name").text)
    assert link is not None
    assert "50\U0001f4a5" in world.client.get(unescape(link.group(1))).text


def test_run_page_answers_whether_it_is_the_same_run(incident: World) -> None:
    answer = incident.client.get(f"/runs/{incident.run_id('v7x')}")
    assert answer.status_code == 200
    text = text_of(answer.text)
    assert "Is it still the same run? Diverged" in text
    assert "No longer the same since step 101 103k tokens" in text
    assert re.search(r"Train gap −0\.3\d\d ± 0\.0\d\d nats tolerance ±0\.\d+", text)
    assert re.search(r"Held-out change \+0\.\d+ nats [^a-z]*to [^a-z]*, does not follow", text)
    assert "Repeated rows 100.0\u202f% 800 distinct of 3\u202f200 rows read" in text
    assert "First cause double shard by factor 4 shown" in text
    assert "Firing" in text
    assert "gs://bucket/200" in text
    assert "410k of 410k tokens · step 400 of 400" in text


def test_run_without_data_or_reference_says_so(world: World) -> None:
    world.start("early")
    world.start("alone", reference=None)
    world.start("lost", reference="no-such-reference")
    assert "No data yet" in text_of(world.client.get(f"/runs/{world.run_id('early')}").text)
    assert "against no reference" in text_of(world.client.get(f"/runs/{world.run_id('alone')}").text)
    assert "which is not installed" in text_of(world.client.get(f"/runs/{world.run_id('lost')}").text)
    for name in ("early", "alone", "lost"):
        for figure in FIGURES:
            answer = world.client.get(f"/pages/runs/{world.run_id(name)}/figures/{figure}")
            assert answer.status_code == 200
            assert not answer.json()["panels"]
        assert "log it as train/ce_loss" in world.client.get(f"/pages/runs/{world.run_id(name)}/figures/loss").text


@pytest.mark.parametrize("axis", ["tokens", "steps"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_figure_of_a_run(incident: World, axis: str, theme: str) -> None:
    panels = {}
    for name in FIGURES:
        answer = incident.client.get(
            f"/pages/runs/{incident.run_id('v7x')}/figures/{name}", params={"x": axis, "theme": theme}
        )
        assert answer.status_code == 200
        panels[name] = answer.json()["panels"]
    assert {name: len(found) for name, found in panels.items()} == dict.fromkeys(FIGURES, 1) | {"tasks": 8}
    assert all(panel["caption"] for found in panels.values() for panel in found)
    marks = {shape["name"]: shape for shape in panels["gap"][0]["figure"]["layout"]["shapes"]}
    scale = 1024 if axis == "tokens" else 1
    assert marks["onset"]["x0"] == pytest.approx(101 * scale)
    assert marks["alert"]["x0"] == pytest.approx(400 * scale)
    low, high = panels["loss"][0]["figure"]["layout"]["xaxis"]["range"]
    assert low < 1 * scale
    assert 400 * scale < high < 420 * scale


def test_what_happened_stands_in_one_list(incident: World) -> None:
    run = incident.run_id("v7x")
    own = {"Sec-Fetch-Site": "same-origin"}
    form = {"text": HOSTILE, "step": "1,200", "by": "Ada <b>"}
    sent = incident.client.post(f"/runs/{run}/notes", data=form, headers=own)
    assert (sent.status_code, sent.headers["location"]) == (303, f"/runs/{run}#timeline")
    page = incident.client.get(f"/runs/{run}").text
    assert HOSTILE not in page
    happened = text_of(page).split("What happened", 1)[1]
    assert re.search(r"1\u202f200 note <script>alert\(1\).*Ada <b>", happened)
    assert "alert v7x: train loss sinks" in happened
    assert "200 checkpoint gs://bucket/200" in happened
    for wrong, why in (
        ({"text": " "}, "text"),
        ({"text": "x", "step": "soon"}, "step"),
        ({"text": "x", "by": ""}, "by"),
    ):
        answer = incident.client.post(f"/runs/{run}/notes", data=form | wrong, headers=own)
        assert answer.status_code == 422
        assert why in text_of(answer.text)
    assert (
        incident.client.post(f"/runs/{run}/notes", data=form, headers={"Sec-Fetch-Site": "cross-site"}).status_code
        == 403
    )
    (note,) = incident.client.get(f"/api/v1/runs/{run}/notes").json()["items"]
    assert (note["step"], note["by"]) == (1200, "Ada <b>")
    gone = incident.client.post(f"/runs/{run}/notes/{note['id']}/remove", headers=own)
    assert gone.status_code == 303
    assert incident.client.get(f"/api/v1/runs/{run}/notes").json()["items"] == []


def test_a_run_is_archived_and_restored_by_its_page(incident: World) -> None:
    run, own = incident.run_id("v7x"), {"Sec-Fetch-Site": "same-origin"}
    assert incident.client.post(f"/runs/{run}/archive", headers=own).status_code == 303
    assert "the list of runs leaves it out" in text_of(incident.client.get(f"/runs/{run}").text)
    assert "v7x" not in text_of(incident.client.get("/").text)
    assert incident.client.post(f"/runs/{run}/restore", headers=own).status_code == 303
    assert "v7x" in text_of(incident.client.get("/").text)


def test_a_window_is_read_at_full_resolution(world: World) -> None:
    segment = world.start("long", reference=None)
    for first in range(1, 40_001, 10_000):
        steps = list(range(first, first + 10_000))
        world.send(segment, steps, {TRAIN: [9.5 if step == 20_200 else 3.0 for step in steps]})
    address = f"/pages/runs/{world.run_id('long')}/figures/loss"

    def xs(**query: object) -> np.ndarray:
        panel = world.client.get(address, params=query).json()["panels"][0]
        (trace,) = [t for t in panel["figure"]["data"] if t.get("name") == "run" and t.get("showlegend", True)]
        return decode(trace["x"])

    assert len(xs(x="steps")) <= 2000
    near = xs(x="steps", **{"from": 20_000, "to": 20_400})
    assert set(range(20_000, 20_401)) <= set(near.astype(int).tolist())
    assert len(near) <= 600
    near = xs(x="tokens", **{"from": 20_000 * 1024, "to": 20_400 * 1024})
    assert {step * 1024 for step in range(20_000, 20_401)} <= set(near.astype(int).tolist())
    assert len(xs(x="steps", **{"from": 400, "to": 300})) == len(xs(x="steps"))
    assert world.client.get(address, params={"from": "nan"}).status_code == 422


def test_superseded_points_and_branches_are_drawn(world: World) -> None:
    first = world.start("restarted")
    world.train(first, 1, 120, double_shard=False)
    second = world.start("restarted", start_step=100, launch=2)
    world.train(second, 101, 140, double_shard=False, seed=6)
    fork = world.start("again", start_step=110, launch=3, forked_from={"run": "restarted", "step": 110})
    world.train(fork, 111, 150, double_shard=False, seed=7)

    def traces(name: str, **query: object) -> dict[str, dict[str, object]]:
        answer = world.client.get(f"/pages/runs/{world.run_id(name)}/figures/loss", params=query | {"x": "steps"})
        return {trace["name"]: trace for trace in answer.json()["panels"][0]["figure"]["data"] if trace.get("name")}

    assert "superseded" not in traces("restarted")
    old = decode(traces("restarted", superseded=True)["superseded"]["x"])
    assert old.tolist() == list(range(101, 121))
    branch = decode(traces("restarted")["again (fork)"]["x"])
    assert branch.tolist() == list(range(111, 151))
    parent = decode(traces("again")["restarted (forked from)"]["x"])
    assert parent.tolist() == list(range(111, 141))


def test_checkpoints_are_inside_outside_or_cannot_be_told(incident: World) -> None:
    answer = incident.client.get(f"/pages/runs/{incident.run_id('v7x')}/checkpoints")
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", answer.text)))
    steps = [int(step) for step in re.findall(r"step (\d+)", text)]
    assert steps == list(range(400, 100, -25))
    first = text.split("Held-out loss", 1)[1] if "Held-out loss" in text else text
    assert re.search(r"\+0\.1\d+ ± 0\.0\d+ outside", first)  # held-out rises with the memorization
    assert "inside" in text
    incident.start("waiting")
    empty = incident.client.get(f"/pages/runs/{incident.run_id('waiting')}/checkpoints")
    assert "No held-out loss or accuracy yet" in empty.text


def test_repeats_over_time_are_drawn_and_told(incident: World) -> None:
    (panel,) = incident.client.get(f"/pages/runs/{incident.run_id('v7x')}/figures/data?x=steps").json()["panels"]
    (line,) = [trace for trace in panel["figure"]["data"] if trace.get("name") == "rows"]
    x, y = decode(line["x"]), decode(line["y"])
    assert np.all(y[x < 100] == 0)
    assert np.all(y[x > 105] == 1)
    assert "rows had been read before" in panel["caption"]
    assert "25.0\u202f% of 3\u202f200 declared rows were read" in panel["caption"]


def test_figures_have_a_validator(incident: World) -> None:
    address = f"/pages/runs/{incident.run_id('v7x')}/figures/loss"
    first = incident.client.get(address)
    again = incident.client.get(address, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert not again.content
    assert incident.client.get(f"{address}?theme=dark").headers["etag"] != first.headers["etag"]


def test_nan_and_infinity_do_not_break_a_run(world: World) -> None:
    segment = world.start("nan")
    world.send(
        segment, [1, 2, 3, 4], {TRAIN: [3.7, "NaN", "Infinity", 3.6], "heldout/lab/ce_loss": [None, "NaN", 3.7, None]}
    )
    world.judge()
    run = world.run_id("nan")
    assert "Diverged" in text_of(world.client.get(f"/runs/{run}").text)
    panel = world.client.get(f"/pages/runs/{run}/figures/loss").json()["panels"][0]
    assert "2 places with NaN or infinity" in panel["caption"]
    for name in FIGURES:
        assert world.client.get(f"/pages/runs/{run}/figures/{name}").status_code == 200


def test_restart_makes_a_second_segment(world: World) -> None:
    first = world.start("restarted")
    world.train(first, 1, 120, double_shard=False)
    second = world.start("restarted", start_step=100, launch=2)
    world.train(second, 101, 200, double_shard=False)
    (panel,) = world.client.get(f"/pages/runs/{world.run_id('restarted')}/figures/segments?x=steps").json()["panels"]
    assert panel["caption"] == "2 segments, the newest from step 101."
    assert panel["figure"]["data"][0]["text"] == ["1: 1 × cpu", "2: 1 × cpu"]


def test_alert_page(incident: World) -> None:
    (alert,) = incident.client.get("/api/v1/alerts").json()["items"]
    text = text_of(incident.client.get(f"/alerts/{alert['id']}").text)
    assert "Firing" in text
    assert re.search(r"Causes, most likely first Shown double shard by factor 4 .* Ruled out", text)
    assert "What to check next" in text
    assert re.search(r"train gap −0\.3\d+ \(−0\.3\d+ to −0\.3\d+\) nats", text)
    assert "share of repeated rows 100.0\u202f%" in text
    assert "Raised" in text
    assert f"/alerts/{alert['id']}" in incident.client.get("/alerts").text


def test_acknowledging_by_the_form(incident: World) -> None:
    (alert,) = incident.client.get("/api/v1/alerts").json()["items"]
    address = f"/alerts/{alert['id']}/acknowledge"
    form = {"by": HOSTILE, "note": "looking"}
    assert incident.client.post(address, data=form, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert incident.client.post(address, data=form).status_code == 403
    assert incident.client.get("/api/v1/alerts").json()["items"][0]["state"] == "firing"
    answer = incident.client.post(address, data=form, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 303
    page = incident.client.get(answer.headers["location"]).text
    assert f"by {HOSTILE} (alert page): looking" in text_of(page)
    assert "<script>alert" not in page
    assert "Acknowledge</button>" not in page


def test_references(world: World) -> None:
    assert "/references/olmo3-7b" in world.client.get("/references").text
    text = text_of(world.client.get("/references/olmo3-7b").text)
    assert "1\u202f413\u202f814" in text
    assert "5.93T" in text
    assert "No public accuracies exist for these tasks" in text
    assert "arc_challenge_test_mc_5shot_fast 1\u202f172" in text
    assert "Assumed: no healthy rerun at this scale is public" in text
    lab = text_of(world.client.get("/references/lab").text)
    assert "3 healthy siblings" in lab
    assert "No public accuracies" not in lab
    panels = world.client.get("/pages/references/olmo3-7b/figures/stage1").json()["panels"]
    assert panels[0]["title"] == "stage1: training loss"
    assert panels[0]["caption"].startswith("3\u202f067 points")
    assert panels[-1]["title"] == "stage1: learning rate"
    assert world.client.get("/pages/references/olmo3-7b/figures/stage3").json()["note"]


def test_hostile_names_are_shown_as_text_everywhere(world: World) -> None:
    metric = f"heldout/{HOSTILE}/ce_loss"
    segment = world.start(HOSTILE, project=HOSTILE, stage=HOSTILE, reference=HOSTILE)
    world.send(
        segment,
        [1, 2, 3],
        {TRAIN: [3.0, 2.9, 2.8], metric: [3.0, None, 2.9], "downstream/<b>/accuracy": [0.1, 0.2, 0.3]},
    )
    world.event(segment, 2, "note", {"text": HOSTILE})
    world.judge()
    run = world.run_id(HOSTILE)
    for address in ("/", f"/runs/{run}", "/alerts"):
        page = world.client.get(address).text
        assert "<script>alert" not in page
        assert "49" not in text_of(page)
    assert HOSTILE in text_of(world.client.get(f"/runs/{run}").text)
    links = re.findall(r'href="([^"]*project=[^"]*)"', world.client.get("/").text)
    assert HOSTILE in text_of(world.client.get(unescape(links[0])).text)
    for name in FIGURES:
        answer = world.client.get(f"/pages/runs/{run}/figures/{name}")
        for panel in answer.json()["panels"]:
            assert "<script>" not in str(panel["figure"])  # Plotly reads markup; titles and captions are set as text
    (panel,) = world.client.get(f"/pages/runs/{run}/figures/heldout").json()["panels"]
    assert panel["title"] == f"Held-out loss: {HOSTILE}"


@pytest.mark.parametrize(
    "address",
    [
        "/runs/nonsense",
        "/runs/00000000-0000-0000-0000-000000000000",
        "/alerts/<script>",
        "/alerts/00000000-0000-0000-0000-000000000000",
        "/references/none",
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "There is no" in text_of(answer.text) or "is no id" in text_of(answer.text)
    assert "<script>" not in answer.text.split("<main")[1]


def test_unknown_figures_are_a_problem_body(incident: World) -> None:
    for address in (f"/pages/runs/{incident.run_id('v7x')}/figures/none", "/pages/references/none/figures/stage1"):
        answer = incident.client.get(address)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


def test_pages_carry_a_strict_policy_and_scripts_are_our_own(incident: World) -> None:
    answer = incident.client.get(f"/runs/{incident.run_id('v7x')}")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    sources = re.findall(r'(?:src|href)="([^"#]+)"', answer.text)
    assert sources
    assert all(source.startswith("/") and not source.startswith("//") for source in sources)
    assert not re.search(r"<script(?![^>]*src=)", answer.text)
    assert not re.search(r"\son\w+=", answer.text)


def test_scripts_and_styles_are_cached_for_ever(client: TestClient) -> None:
    page = client.get("/").text
    files = set(re.findall(r'"(/static/[^"]+)"', page))
    assert len(files) >= 5
    for file in files:
        answer = client.get(file)
        assert answer.status_code == 200, file
        assert "immutable" in answer.headers["cache-control"]


def test_plotly_comes_from_the_python_package(incident: World) -> None:
    address = re.search(r'src="(/plotly/[^"]+)"', incident.client.get(f"/runs/{incident.run_id('v7x')}").text).group(1)  # type: ignore[union-attr]
    answer = incident.client.get(address)
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert b"plotly.js v" in answer.content[:200]
    plain = incident.client.get(address, headers={"Accept-Encoding": "identity"})
    assert plain.content == answer.content
    assert "content-encoding" not in plain.headers
    assert "immutable" not in incident.client.get("/plotly/0.0.0/plotly.min.js").headers["cache-control"]


def test_under_a_sub_path_every_address_begins_with_it(incident: World) -> None:
    behind = TestClient(incident.client.app, root_path="/pacenote", follow_redirects=False)  # type: ignore[attr-defined]
    page = behind.get(f"/pacenote/runs/{incident.run_id('v7x')}").text
    addresses = re.findall(r'(?:src|href|action|data-figures)="(/[^"]*)"', page)
    assert len(addresses) > 10
    assert all(address.startswith("/pacenote/") for address in addresses)


def test_age_is_of_the_last_data(incident: World) -> None:
    moment = re.search(
        r'<time datetime="([^"]+)" data-age', incident.client.get(f"/runs/{incident.run_id('v7x')}").text
    )
    assert moment is not None
    at = time.mktime(time.strptime(moment.group(1), "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    assert abs(time.time() - at) < 60
