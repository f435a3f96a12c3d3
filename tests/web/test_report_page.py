"""A report's page in a browser: nothing runs, nothing is fetched, and it can be read on a phone and on paper."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from tests.web.conftest import Server
from tests.web.world import World

WIDTHS = {"desktop": 1200, "phone": 390}
HOSTILE = '<script>document.title="x"</script> "\'&| 🚀 ' + "é" * 60


@pytest.fixture
def page(chromium: Browser) -> Page:
    return chromium.new_page()


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_it_reads_well_at_any_width_and_fetches_nothing(page: Page, server: Server, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    address = f"{server.url}/reports/{server.world.run_id('v7x')}"
    page.goto(address)
    assert said == []
    assert [url for url in asked if not url.endswith("/favicon.ico")] == [address]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    pictures = page.get_by_role("img")
    assert pictures.count() >= 12
    assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 60)")
    assert pictures.first.get_attribute("aria-labelledby") == "f0-t f0-d"
    assert page.locator(".verdict .word").inner_text() in ("△ Drifting", "✗ Diverged")
    assert not page.locator("#data").is_visible()
    page.close()


def test_it_prints_on_few_sheets_with_the_table_whole(page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 688, "height": 1000})  # A4 without its margins
    page.goto(f"{server.url}/reports/{server.world.run_id('v7x')}")
    page.emulate_media(media="print")
    tables = page.locator("table.checkpoints")
    assert tables.evaluate_all("all => all.every(t => t.scrollWidth <= document.documentElement.clientWidth)")
    sheets = page.pdf(prefer_css_page_size=True).count(b"/Type /Page\n")
    assert 3 <= sheets <= 12
    page.close()


def test_names_are_text(page: Page, server: Server) -> None:
    segment = server.world.start(HOSTILE)
    server.world.send(segment, [1, 2, 3], {"train/ce_loss": [3.0, "NaN", 2.5]})
    page.goto(f"{server.url}/reports/{server.world.run_id(HOSTILE)}")
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.title().startswith(HOSTILE.split()[0])
    assert page.locator("script").count() == 0
    page.close()


def test_it_is_linked_and_comes_in_every_form(incident: World) -> None:
    run = incident.run_id("v7x")
    assert f'href="/reports/{run}"' in incident.client.get(f"/runs/{run}").text
    same = incident.client.get(f"/api/v1/runs/{run}/report", params={"format": "html"})
    page = incident.client.get(f"/reports/{run}")
    assert page.content == same.content
    assert page.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert incident.client.get(f"/reports/{run}", params={"format": "md"}).text.startswith("# v7x: ")
    assert incident.client.get(f"/reports/{run}", params={"format": "json"}).json()["run"]["id"] == run
    assert incident.client.get("/reports/nothing").status_code == 404
    assert incident.client.get(f"/reports/{run}", params={"at": "soon"}).status_code == 422
