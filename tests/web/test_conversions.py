"""A run's page says what was done to the trainer's numbers before they were stored."""

from __future__ import annotations

from html import unescape

from tests.web.world import World
from trainer_hooks.names import load


def test_the_page_shows_the_conversions_that_were_made(world: World) -> None:
    declared = load("maxtext").given(accumulation=4).declared()
    segment = world.start("converted", config={"trainer_hooks": declared})
    columns = {"train/ce_loss": [3.0], "raw/maxtext/learning/lm_loss": [3.25], "train/z_loss": [0.25]}
    world.send(segment, [1], {**columns, "raw/maxtext/learning/z_loss": [1.0]})
    page = unescape(world.client.get(f"/runs/{world.run_id('converted')}").text)
    assert "step S = s + 1: MaxText's step s" in page
    assert "train/ce_loss = learning/lm_loss - learning/z_loss / 4" in page
    assert "train/z_loss = learning/z_loss / 4" in page
    assert "eval/avg_loss" not in page  # no evaluation was converted


def test_a_configuration_that_says_nonsense_costs_nothing(world: World) -> None:
    for number, nonsense in enumerate(
        [
            "text",
            {"conversions": "text"},
            {"conversions": [1, {"from": ["("]}], "parameters": [], "steps": 3, "raw": {}},
        ]
    ):
        segment = world.start(f"run {number}", config={"trainer_hooks": nonsense})
        world.send(segment, [1], {"train/ce_loss": [3.0]})
        page = world.client.get(f"/runs/{world.run_id(f'run {number}')}")
        assert page.status_code == 200
        assert "trainer's numbers" not in unescape(page.text)
