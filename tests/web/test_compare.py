"""Several runs beside each other: the table at shared tokens, the curves, the configs."""

from __future__ import annotations

import re
from uuid import UUID, uuid4

import pytest

from tests.web.decoding import decode
from tests.web.reading import HOSTILE, text_of
from tests.web.world import TRAIN, World
from web.content.compare import SPEED, STEP_TIME


@pytest.fixture
def pair(world: World) -> tuple[World, str, str]:
    """A run of 300 steps and a hostile-named one of 200, 0.1 below it, with another learning rate."""
    first = world.start("first", reference=None, config={"lr": 0.1, "layers": 2, "heads": {"n": 4}})
    second = world.start(HOSTILE, reference=None, config={"lr": 0.2, "layers": 2, "heads": {"n": 8}})
    for segment, last, less in ((first, 300, 0.0), (second, 200, 0.1)):
        steps = list(range(1, last + 1))
        world.send(segment, steps, {TRAIN: [4.0 - step / 1000 - less for step in steps]})
        at = [100, 200]
        world.send(segment, at, {"heldout/c4/ce_loss": [3.0 - less, 2.5 - less]})
        accuracies = {f"downstream/{task}/accuracy": [0.5 + less, 0.5 + less] for task in ("a", "b")}
        world.send(segment, at, accuracies)
    return world, world.run_id("first"), world.run_id(HOSTILE)


def test_the_table_reads_all_runs_at_the_same_tokens(pair: tuple[World, str, str]) -> None:
    world, first, second = pair
    page = world.client.get(f"/compare?run={first}&run={second}&run={first}").text
    text = text_of(page)
    assert "At 205k tokens" in text  # 200 steps of 1,024
    assert HOSTILE in text
    assert HOSTILE not in page
    assert re.search(r"train/ce_loss 3\.850 nats 3\.749 nats −0\.100 nats", text)  # steps 101 to 200 of both
    assert "heldout/c4/ce_loss 2.500 nats 2.400 nats −0.100 nats" in text
    assert "mean of 2 accuracies 0.500 0.600 +0.100" in text
    assert re.search(r"heads\.n 4 8.*lr 0\.1 0\.2", text)
    assert "1 further entry is the same" in text


def test_how_much_faster_stands_beside_the_quality(pair: tuple[World, str, str]) -> None:
    world, first, _ = pair
    world.start("faster", reference=None)
    for name, rate, launch in (("first", 8000.0, 2), ("faster", 10_000.0, 2)):
        segment = world.start(name, reference=None, launch=launch)
        steps = list(range(1, 201))
        world.send(segment, steps, {SPEED: [rate] * 200, STEP_TIME: [1024 / rate] * 200})
    text = text_of(world.client.get(f"/compare?run={first}&run={world.run_id('faster')}").text)
    assert f"{SPEED} 8,000 tokens/s 10,000 tokens/s 1.25 × as fast +2,000 tokens/s" in text
    assert f"{STEP_TIME} 0.128 s 0.102 s 1.25 × as fast −0.026 s" in text
    assert text.index(SPEED) < text.index("downstream/")


def test_one_run_or_none_says_what_to_do(pair: tuple[World, str, str]) -> None:
    world, first, _ = pair
    assert "Choose at least two runs" in text_of(world.client.get("/compare").text)
    assert "Choose at least two runs" in text_of(world.client.get(f"/compare?run={first}").text)
    assert f'value="{first}"' in world.client.get("/compare").text  # is offered
    assert world.client.get(f"/compare?run={uuid4()}").status_code == 404
    assert world.client.get(f"/pages/compare/figures?run={uuid4()}").status_code == 404


def test_a_run_without_data_or_config_is_shown_empty(pair: tuple[World, str, str]) -> None:
    world, first, second = pair
    world.start("empty", reference=None, config={})
    text = text_of(world.client.get(f"/compare?run={first}&run={second}&run={world.run_id('empty')}").text)
    assert "train/ce_loss 3.850 nats 3.749 nats −0.100 nats –" in text
    assert "lr 0.1 0.2 –" in text
    assert "1 further entry" in text  # what the run without a config lacks is no difference


@pytest.mark.parametrize("axis", ["tokens", "steps", "time"])
def test_every_metric_has_a_line_for_every_run(pair: tuple[World, str, str], axis: str) -> None:
    world, first, second = pair
    address = f"/pages/compare/figures?run={first}&run={second}&x={axis}"
    panels = world.client.get(address).json()["panels"]
    assert [panel["id"] for panel in panels] == [
        TRAIN,
        "heldout/c4/ce_loss",
        "downstream/a/accuracy",
        "downstream/b/accuracy",
    ]
    lines = [t for t in panels[0]["figure"]["data"] if t.get("showlegend", True) and t.get("name")]
    assert [line["name"] for line in lines] == [
        "first",
        HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
    ]
    points = [t for t in panels[0]["figure"]["data"] if not t.get("showlegend", True) and t.get("name")]
    assert [len(decode(line["x"])) for line in points] == [300, 200]
    assert lines[0]["line"]["dash"] != lines[1]["line"]["dash"]


def test_the_list_leads_here(pair: tuple[World, str, str]) -> None:
    world, first, _ = pair
    page = world.client.get("/").text
    assert f'<input type="checkbox" name="run" value="{UUID(first)}"' in page
    assert 'action="/compare"' in page
