"""Every page through axe-core, on a desk and on a phone, in both themes; and by keyboard, in print, without motion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from axe_core_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Page, expect
from pydantic import SecretStr

from tests.web.conftest import TOKEN, Server, make_settings
from tests.web.visit import DRAWN, WAIT, Visit

COLOURS = ("color-contrast", "link-in-text-block")  # axe-core's rules of what a theme changes
NOWHERE = "00000000-0000-0000-0000-000000000000"
SIZES = {"desk": (1400, 900), "phone": (390, 844)}
HOSTILE = "a/b?c=\"d'&e <script>alert(1)</script> 🏁 " + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 90
LONGEST = HOSTILE.encode()[:256].decode(errors="ignore")
# Everything that Tab reaches, and whether the focus on it can be seen.
FOCUSED = """() => {
  const element = document.activeElement, style = getComputedStyle(element);
  const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== 'none';
  const { width, height, right, bottom } = element.getBoundingClientRect();
  return { name: element.outerHTML.slice(0, 120), ring, seen: width > 0 && height > 0 && right > 0 && bottom > 0 };
}"""
# Touch targets under 24 px, the least that WCAG 2.2 allows; a box counts with the label that ticks it.
SMALL = """() => [...document.querySelectorAll(
    'main a[href], nav a, button, input:not([type=hidden]), select, summary')]
  .filter(element => element.checkVisibility()).map(element => [element.closest('label') ?? element, element])
  .filter(([target]) => Math.min(target.getBoundingClientRect().height, target.getBoundingClientRect().width) < 24)
  .map(([, element]) => element.outerHTML.slice(0, 120))"""
CONTROLS = """() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary')].filter(
  element => element.type !== 'hidden' && !element.disabled && element.tabIndex >= 0 && element.checkVisibility()
    && !(element.type === 'radio' && !element.checked)).length"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, incident_file: Path) -> Iterator[Server]:
    with Server(make_settings(tmp_path_factory.mktemp("people"), incident_file)) as server:
        segment = server.world.start(HOSTILE[:60], project="a/b <b>")
        server.world.train(segment, 1, 60)
        server.world.send(segment, [60], {HOSTILE[: len(HOSTILE) - 1]: [1.0], f"optim/{HOSTILE[:60]}": [2.0]})
        longest = server.world.start(LONGEST, project=LONGEST)
        server.world.train(longest, 1, 250)
        server.world.judge()
        yield server


def paths(server: Server) -> dict[str, str]:
    """Every page by name."""
    world = server.world
    run = world.run_id("v7x")
    hostile, longest = world.run_id(HOSTILE[:60]), world.run_id(LONGEST)
    (alert,) = world.client.get("/api/v1/alerts", params={"run": run}).json()["items"]
    (long_alert,) = world.client.get("/api/v1/alerts", params={"run": longest}).json()["items"]
    project = urlencode({"name": LONGEST})
    return {
        "runs": "/",
        "run": f"/runs/{run}",
        "alert": f"/alerts/{alert['id']}",
        "alerts": "/alerts",
        "compare": f"/compare?run={run}&run={hostile}",
        "references": "/references",
        "reference": "/references/lab",
        "settings": "/settings",
        "rules": f"/settings/runs/{run}",
        "report": f"/reports/{run}",
        "problem": f"/runs/{NOWHERE}",
        "api": "/api/docs",
        "hostile run": f"/runs/{hostile}",
        "hostile rules": f"/settings/runs/{hostile}",
        "hostile report": f"/reports/{hostile}",
        "longest run": f"/runs/{longest}",
        "longest alert": f"/alerts/{long_alert['id']}",
        "longest rules": f"/settings/runs/{longest}",
        "longest report": f"/reports/{longest}",
        "longest project": f"/settings/project?{project}",
    }


def faults(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """What axe-core calls serious or critical, by some of its rules or all, each with the element. Plotly's drawings,
    which are hidden from screen readers, are left out."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found: list[dict[str, Any]] = page.evaluate(
        """rules => axe.run({ exclude: [['.main-svg']] }, { resultTypes: ['violations'],
          ...rules.length && { runOnly: { type: 'rule', values: rules } } }).then(result => result.violations)""",
        list(rules),
    )
    return [
        f"{fault['id']}: {node['target']} {node['html'][:160]} {node['failureSummary'][:300]}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


def overflow(page: Page, width: int) -> list[int]:
    """By how many pixels a page is wider than the screen, if it is."""
    over: int = page.evaluate("document.documentElement.scrollWidth") - width
    return [over] if over > 0 else []


def errors_of(visit: Visit) -> list[str]:
    """Console errors, less the one of an answer that is a problem on purpose."""
    return [error for error in visit.errors if "status of 404" not in error and "status of 401" not in error]


@pytest.mark.parametrize("size", SIZES)
def test_no_serious_fault_and_no_error_on_any_page(server: Server, chromium: Browser, size: str) -> None:
    width, height = SIZES[size]
    phone = size == "phone"
    context = chromium.new_context(
        viewport={"width": width, "height": height}, color_scheme="light", is_mobile=phone, has_touch=phone
    )
    context.set_default_timeout(WAIT)
    wrong: list[str] = []
    for name, path in paths(server).items():
        if " " in name and not phone:
            continue  # test_hostile_names_are_text looks at them on a desk
        visit = Visit(context.new_page())
        page = visit.go(server.url + path)
        wrong += [f"{name}: {over} px too wide" for over in overflow(page, width)]
        if phone and " " not in name and name not in ("report", "api"):  # which are made for paper, and for programs
            wrong += [f"{name}: too small for a thumb: {found}" for found in page.evaluate(SMALL)]
        wrong += [f"{name}, light: {fault}" for fault in faults(page)]
        if " " not in name:  # long names have the same colours; and of a page a theme changes nothing else
            page.emulate_media(color_scheme="dark")
            wrong += [f"{name}, dark: {fault}" for fault in faults(page, COLOURS)]
        wrong += [f"{name}: {error}" for error in errors_of(visit)]
        page.close()
    context.close()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_sign_in_form(tmp_path: Path, chromium: Browser, theme: Any) -> None:
    with Server(make_settings(tmp_path, token=SecretStr(TOKEN))) as server:
        context = chromium.new_context(viewport={"width": 390, "height": 844}, color_scheme=theme)
        visit = Visit(context.new_page())
        page = visit.go(f"{server.url}/alerts")
        assert faults(page) + errors_of(visit) == []
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("That is not the token of this service.", timeout=WAIT)
        assert faults(page) + errors_of(visit) == []
        context.close()


@pytest.fixture
def desk(chromium: Browser) -> Iterator[BrowserContext]:
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(WAIT)
    yield context
    context.close()


@pytest.mark.parametrize("name", ["runs", "run", "alert", "compare", "settings", "rules", "reference"])
def test_tab_reaches_every_control_and_shows_where_it_is(server: Server, desk: BrowserContext, name: str) -> None:
    page = Visit(desk.new_page()).go(server.url + paths(server)[name])
    wanted = page.evaluate(CONTROLS)
    reached: list[dict[str, Any]] = []
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        reached.append(page.evaluate(FOCUSED))
    assert len({found["name"] for found in reached}) > 3
    assert len(reached) >= wanted
    assert [found["name"] for found in reached if not found["ring"]] == []
    assert [found["name"] for found in reached if not found["seen"]] == []


def test_the_first_tab_skips_to_the_content(server: Server, desk: BrowserContext) -> None:
    page = Visit(desk.new_page()).go(server.url + paths(server)["run"])
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('content').contains(document.activeElement)")


def test_filter_and_note_by_keyboard_alone(server: Server, desk: BrowserContext) -> None:
    page = Visit(desk.new_page()).go(f"{server.url}/")
    page.get_by_role("searchbox").focus()
    page.keyboard.type("v7x")
    page.keyboard.press("Enter")
    page.wait_for_url("**search=v7x**")
    page.get_by_role("link", name="v7x").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(DRAWN)
    page.get_by_label("Note").focus()
    page.keyboard.type("<b>read</b> again")
    page.keyboard.press("Tab")
    page.keyboard.type("200")
    page.keyboard.press("Tab")
    page.keyboard.type("Ada")
    page.keyboard.press("Enter")
    expect(page.locator("#happened")).to_contain_text("<b>read</b> again")


def test_hostile_names_are_text(server: Server, desk: BrowserContext) -> None:
    desk.add_init_script("window.alert = () => { document.documentElement.dataset.harmed = 'yes'; }")
    for name in (
        "runs",
        "alerts",
        "settings",
        "compare",
        *(name for name in paths(server) if name.startswith(("hostile", "longest"))),
    ):
        visit = Visit(desk.new_page())
        page = visit.go(server.url + paths(server)[name])
        assert page.evaluate("document.documentElement.dataset.harmed ?? 'no'") == "no"
        assert overflow(page, SIZES["desk"][0]) + errors_of(visit) == []
        assert "<script>alert(1)</script>" in page.locator("main").inner_text()
        page.close()


def test_what_is_unfolded_stays_so_when_news_come(server: Server, desk: BrowserContext) -> None:
    page = Visit(desk.new_page()).go(server.url + paths(server)["alert"])
    page.get_by_text("ruled out, with the reason").click()
    (alert,) = server.world.client.get("/api/v1/alerts", params={"run": server.world.run_id("v7x")}).json()["items"]
    body = {"by": "Ada", "note": "looking at the loader"}
    assert server.world.client.post(f"/api/v1/alerts/{alert['id']}/comment", json=body).status_code == 200
    expect(page.locator(".history")).to_contain_text("looking at the loader", timeout=WAIT)
    expect(page.get_by_text("sampling with replacement")).to_be_visible()


def test_less_motion_where_the_system_asks_for_it(server: Server, chromium: Browser) -> None:
    context = chromium.new_context(reduced_motion="reduce")
    page = Visit(context.new_page()).go(server.url + paths(server)["run"])
    moving = page.evaluate(
        """() => [...document.querySelectorAll('body *:not(svg *)')].filter(element => {
          const style = getComputedStyle(element);
          return Math.max(...style.transitionDuration.split(',').map(parseFloat)) > 0.01
            || style.animationName !== 'none' && parseFloat(style.animationDuration) > 0.01;
        }).map(element => element.outerHTML.slice(0, 80))"""
    )
    context.close()
    assert moving == []


def test_print_is_dark_on_white_and_leaves_out_what_paper_cannot_do(server: Server, desk: BrowserContext) -> None:
    desk.add_init_script("localStorage.setItem('pacenote-theme', 'dark')")
    page = Visit(desk.new_page()).go(server.url + paths(server)["run"])
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(230, 233, 237)"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    assert "invert" in page.evaluate("getComputedStyle(document.querySelector('.plot')).filter")
    for hidden in ("header.top nav", "#theme", ".controls", "form.note", ".skip"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.get_by_role("heading", name="v7x")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") in (
        "rgb(255, 255, 255)",
        "rgba(0, 0, 0, 0)",
    )


@pytest.mark.parametrize("name", ["run", "alert"])
def test_charts_fit_the_paper_and_the_screen_again_after_it(server: Server, desk: BrowserContext, name: str) -> None:
    page = Visit(desk.new_page()).go(server.url + paths(server)[name])
    widths = "() => [...document.querySelectorAll('.plot .main-svg')].map(picture => picture.clientWidth)"
    before = page.evaluate(widths)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function(f"Math.max(...({widths})()) <= 660")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.wait_for_function(f"Math.max(...({widths})()) === {max(before)}")
