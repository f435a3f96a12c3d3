"""Every page of a real service on SQLite: what it says, and that names never become markup."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from tests.web.reading import HOSTILE, text_of
from tests.web.world import TRAIN, World

FIGURES = ("loss", "gap", "generalization", "segments", "heldout", "accuracy", "tasks", "training", "data")


def test_empty_states_say_what_to_do(client: TestClient) -> None:
    assert "trainer_hooks.start" in text_of(client.get("/").text)
    assert "pacenote channel add" in text_of(client.get("/alerts").text)
    assert "pacenote reference" in text_of(client.get("/references").text)


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


def test_alerts_are_chosen_by_state_and_paged(incident: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = incident.start("broken")
    incident.train(broken, 1, 100, double_shard=False)
    incident.send(broken, list(range(101, 110)), {TRAIN: ["NaN"] * 9})
    incident.judge()
    assert len(re.findall(r'class="name"', incident.client.get("/alerts?state=firing").text)) == 2
    assert "None is resolved" in text_of(incident.client.get("/alerts?state=resolved").text)
    assert len(re.findall(r'class="name"', incident.client.get("/alerts?state=nonsense").text)) == 2
    monkeypatch.setattr("web.pages.ALERTS", 1)
    newest = incident.client.get("/alerts?state=firing").text
    assert "broken: " in text_of(newest)
    older = re.search(r'rel="next" href="([^"]+)"', newest)
    assert older is not None
    assert "v7x: " in text_of(incident.client.get(unescape(older.group(1))).text)


@pytest.mark.parametrize("text", ["x" * 4000, "\N{CHEQUERED FLAG}" * 4000])
def test_a_note_may_be_as_long_as_the_api_takes_it(incident: World, text: str) -> None:
    run = incident.run_id("v7x")
    form = {"text": text, "step": "200", "by": "Ada"}
    answer = incident.client.post(f"/runs/{run}/notes", data=form, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 303
    assert incident.client.get(f"/api/v1/runs/{run}/notes").json()["items"][0]["text"] == text


def test_references(world: World) -> None:
    assert "/references/olmo3-7b" in world.client.get("/references").text
    text = text_of(world.client.get("/references/olmo3-7b").text)
    assert "1,413,814" in text
    assert "5.93T" in text
    assert "No public accuracies exist for these tasks" in text
    assert "arc_challenge_test_mc_5shot_fast 1,172" in text
    assert "Assumed: no healthy rerun at this scale is public" in text
    lab = text_of(world.client.get("/references/lab").text)
    assert "3 healthy siblings" in lab
    assert "No public accuracies" not in lab
    panels = world.client.get("/pages/references/olmo3-7b/figures/stage1").json()["panels"]
    assert panels[0]["title"] == "stage1: training loss"
    assert panels[0]["caption"].startswith("3,067 points")
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
    found = re.search(r'"(/plotly/[^"]+)"', incident.client.get(f"/runs/{incident.run_id('v7x')}").text)
    assert found is not None
    address = found.group(1)
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
    run = incident.run_id("v7x")
    moment = re.search(r'<time datetime="([^"]+)" data-age', incident.client.get(f"/runs/{run}").text)
    assert moment is not None
    last = incident.client.get(f"/api/v1/runs/{run}").json()["last_data_at"]
    assert moment.group(1)[:19] == last[:19]
