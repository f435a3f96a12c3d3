"""The list of runs: what it shows, and how it is searched, ordered and paged."""

from __future__ import annotations

import re
from html import unescape
from uuid import UUID

from tests.web.reading import text_of
from tests.web.world import World


def test_list_shows_verdict_progress_and_age(incident: World) -> None:
    incident.start("waiting")
    page = incident.client.get("/").text
    text = text_of(page)
    assert f"/runs/{incident.run_id('v7x')}" in page
    assert "Diverged" in text  # held-out rises too
    assert "410k tokens · step 400 · 100.0\u202f%" in text
    assert re.search(r"1 open .*(\d\u202f(s|min) ago|now)", text)
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
    older = unescape(re.search(r'rel="next" href="([^"]+)"', first).group(1))
    assert "run 00" in world.client.get(older).text
    assert world.client.get("/?cursor=nonsense").status_code in (400, 422)


def test_a_list_ordered_by_long_names_is_paged(world: World) -> None:
    for number in range(51):
        world.start(f"{number:02}" + "\U0001f4a5" * 60)
    link = re.search(r'rel="next" href="([^"]+)"', world.client.get("/?sort=name").text)
    assert link is not None
    assert "50\U0001f4a5" in world.client.get(unescape(link.group(1))).text
