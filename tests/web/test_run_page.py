"""A run's page and its figures on a real service: what they say and draw."""

from __future__ import annotations

import re
from html import unescape

import numpy as np
import pytest

from tests.web.decoding import decode, trace
from tests.web.reading import HOSTILE, text_of
from tests.web.world import TRAIN, World

FIGURES = ("loss", "gap", "generalization", "segments", "heldout", "accuracy", "tasks", "training", "data")


def test_run_page_answers_whether_it_is_the_same_run(incident: World) -> None:
    answer = incident.client.get(f"/runs/{incident.run_id('v7x')}")
    assert answer.status_code == 200
    text = text_of(answer.text)
    assert "Is it still the same run? Diverged" in text
    assert "No longer the same since step 101 103k tokens" in text
    assert re.search(r"Train gap −0\.3\d\d ± 0\.0\d\d nats tolerance ±0\.\d+", text)
    assert re.search(r"Held-out change \+0\.\d+ nats [^a-z]*to [^a-z]*, does not follow", text)
    assert "Repeated rows 100.0\u202f% 800 distinct of 3,200 rows read" in text
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
    assert re.search(r"1,200 note <script>alert\(1\).*Ada <b>", happened)
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
    assert "rows had been read before (0.01\u202f% is natural, assumed: natural twins in a corpus)" in panel["caption"]
    unseen = incident.client.get(f"/api/v1/runs/{incident.run_id('v7x')}/audit").json()["unseen"]
    assert unseen
    assert all(text in panel["caption"] for text in unseen)
    assert "25.0\u202f% of 3,200 declared rows were read" in panel["caption"]


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
    assert panel["caption"].startswith("2 segments, the newest from step 101 to 200. The same blocks lie under every")
    assert panel["figure"]["data"][0]["text"] == ["1: 1 × cpu", "2: 1 × cpu"]
    for name in FIGURES:
        group = world.client.get(f"/pages/runs/{world.run_id('restarted')}/figures/{name}?x=steps").json()
        if name == "segments" or not group["panels"]:
            continue
        strip = group["ribbon"]  # sent once for all charts of a group
        assert decode(strip["base"]).tolist() == [1.0, 100.0], name
        assert decode(strip["x"]).tolist() == [99.0, 100.0], name
        assert "from step 101 to 200" in strip["hovertext"][1]
        for found in group["panels"]:
            layout = found["figure"]["layout"]
            assert strip["yaxis"] == layout["xaxis"]["anchor"]
            assert layout["yaxis8"]["domain"][1] < layout["yaxis"]["domain"][0]


def test_a_window_s_caption_is_of_the_window(world: World) -> None:
    segment = world.start("windowed")
    world.train(segment, 1, 200, double_shard=False)
    world.send(segment, list(range(1, 201)), {"optim/grad_norm": [float(step) for step in range(1, 201)]})
    path = f"/pages/runs/{world.run_id('windowed')}/figures"

    def captions(group: str, query: str) -> list[str]:
        return [panel["caption"] for panel in world.client.get(f"{path}/{group}?x=steps{query}").json()["panels"]]

    assert "Newest: 200.000, reference" in " ".join(captions("training", ""))
    assert "Last in this window: 60.000, reference" in " ".join(captions("training", "&from=20&to=60"))
    assert all(words.startswith("Last in this window: ") for words in captions("loss", "&from=20&to=60"))
    assert all(words.startswith("Last in this window: ") for words in captions("tasks", "&from=20&to=60"))
    assert captions("heldout", "&from=51&to=60") == ["No value in this window."]


def test_the_generalization_gap_falls_where_the_model_memorizes(incident: World) -> None:
    path = f"/pages/runs/{incident.run_id('v7x')}/figures/generalization?x=steps"
    (panel,) = incident.client.get(path).json()["panels"]
    change = trace(panel["figure"], "train − held-out")
    at, values = decode(change["x"]), decode(change["y"])
    before, after = values[at <= 100], values[at > 350]
    assert abs(before.mean()) < 0.05 < 0.4 < -after.mean()  # 0.0013 nats a step and a third of it, 250 to 300 steps
    assert "below 0 where the model memorizes" in panel["caption"]
