"""The pages in a real browser: figures, live data, zoom, themes, a phone's width, signing in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

import pytest
from playwright.sync_api import Browser, BrowserContext, Route, expect
from pydantic import SecretStr

from service.alerts.repository import AlertRepository
from service.database.engine import writing
from tests.web.conftest import TOKEN, Server, make_settings
from tests.web.visit import DRAWN, WAIT, Visit

# What Plotly holds of one figure: its data as arrays, its layout, and the range on screen.
FIGURE = """group => {
  const plot = document.querySelector(`#figures-${group} .plot`);
  const trace = plot._fullData.findLast(t => t.name === 'run' || t.name === 'train gap');
  return { xs: Array.from(trace.x), range: [...plot.layout.xaxis.range], shapes: plot.layout.shapes,
           ink: plot.layout.font.color, drawn: plot.querySelectorAll('.shapelayer path').length };
}"""


@pytest.fixture(scope="module")
def desk(chromium: Browser) -> Iterator[BrowserContext]:
    """A desktop browser; its pages share what it has cached."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    yield context
    context.close()


@pytest.fixture
def visit(desk: BrowserContext) -> Iterator[Visit]:
    """A new page; whatever it writes to the console as an error fails the test."""
    visit = Visit(desk.new_page())
    yield visit
    visit.page.close()
    assert not visit.errors


def address(server: Server, name: str = "v7x") -> str:
    return f"{server.url}/runs/{server.world.run_id(name)}"


def alert_id(server: Server) -> str:
    world = server.world
    (alert,) = world.client.get("/api/v1/alerts", params={"run": world.run_id("v7x")}).json()["items"]
    return alert["id"]


def test_figures_are_drawn_and_the_alert_is_marked_at_its_onset(server: Server, visit: Visit) -> None:
    page = visit.go(address(server))
    assert page.locator(".panel .main-svg").count() >= 13
    for plot in page.locator(".plot").all():
        assert plot.get_attribute("role") == "group"
        assert len(plot.get_attribute("aria-label") or "") > 20
    figure = page.evaluate(FIGURE, "gap")
    marks = {shape["name"]: shape["x0"] for shape in figure["shapes"]}
    assert marks["onset"] == pytest.approx(101 * 1024)
    assert marks["alert"] == pytest.approx(400 * 1024)
    assert figure["drawn"] >= 5
    line = page.locator("#figures-gap .shapelayer path").evaluate_all(
        """(paths) => { const plot = paths[0].closest('.plot'), axis = plot._fullLayout.xaxis;
             const want = plot.getBoundingClientRect().left + axis._offset + axis.d2p(101 * 1024);
             return Math.min(...paths.map(p => Math.abs(p.getBoundingClientRect().left - want))); }"""
    )
    assert line < 3  # pixels
    expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)


def test_new_data_arrives_without_reload_and_keeps_the_zoom(server: Server, visit: Visit) -> None:
    world = server.world
    segment = world.start("live")
    world.train(segment, 1, 150)
    page = visit.go(address(server, "live"))
    expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)
    page.evaluate("window.sameDocument = true")
    assert len(page.evaluate(FIGURE, "loss")["xs"]) > 0
    page.evaluate("Plotly.relayout(document.querySelector('#figures-loss .plot'), {'xaxis.range': [102400, 204800]})")
    page.wait_for_function(f"() => ({FIGURE})('gap').range[1] === 204800", timeout=WAIT)  # the others follow
    assert "from=102400&to=204800" in page.url

    world.train(segment, 151, 300)
    world.judge()
    server.app.state.context.broker.publish("verdict", {"run": world.run_id("live"), "project": "lab"})
    page.wait_for_function(f"() => ({FIGURE})('gap').xs.at(-1) > 250 * 1024", timeout=WAIT)
    expect(page.locator("#headline")).to_contain_text("step 300 of 400", timeout=WAIT)
    expect(page.locator("#headline")).to_contain_text("double shard by factor 4", timeout=WAIT)
    assert page.evaluate(FIGURE, "loss")["range"] == [102400, 204800]
    assert page.evaluate("window.sameDocument") is True

    page.get_by_role("button", name="Reset zoom").click()
    page.wait_for_function(f"() => ({FIGURE})('loss').range[1] > 300 * 1024", timeout=WAIT)
    assert "from=" not in page.url


def test_the_page_itself_keeps_the_zoom_when_news_come(server: Server, visit: Visit) -> None:
    """Whatever window the answers are made for: here the service is never told of one."""
    world = server.world
    segment = world.start("kept")
    world.train(segment, 1, 150)
    told: list[str] = []

    def untold(route: Route) -> None:
        parts = urlsplit(route.request.url)
        told.append(parts.query)
        query = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("from", "to")]
        route.continue_(url=urlunsplit(parts._replace(query=urlencode(query))))

    visit.page.route("**/figures/*", untold)
    page = visit.go(address(server, "kept"))
    expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)
    page.evaluate("Plotly.relayout(document.querySelector('#figures-loss .plot'), {'xaxis.range': [51200, 102400]})")
    page.wait_for_function(f"() => ({FIGURE})('gap').range[1] === 102400", timeout=WAIT)
    world.train(segment, 151, 300)
    page.wait_for_function(f"() => ({FIGURE})('loss').xs.at(-1) === 300 * 1024", timeout=WAIT)
    for group in ("loss", "gap"):
        assert page.evaluate(FIGURE, group)["range"] == [51200, 102400]
    assert any("from=51200&to=102400" in query for query in told)


def test_the_segments_lie_under_every_chart_and_move_with_it(server: Server, visit: Visit) -> None:
    world = server.world
    world.train(world.start("restarted"), 1, 200)
    topology: dict[str, object] = {"hosts": 4, "devices": 32, "device_kind": "<b>TPU"}
    world.train(world.start("restarted", start_step=200, launch=2, topology=topology), 201, 400)
    page = visit.go(address(server, "restarted") + "?x=steps&from=190&to=230")
    strips = page.evaluate(
        """() => [...document.querySelectorAll('.plot')].map(plot => {
          const { xaxis, yaxis8: strip } = plot._fullLayout, bars = plot.querySelectorAll('.barlayer .point path');
          if (!strip) return [plot.closest('[data-panel]').dataset.panel];
          const left = plot.getBoundingClientRect().left + xaxis._offset + xaxis.l2p(200);
          return ['', bars.length, Math.abs(bars[1].getBoundingClientRect().left - left)]; })"""
    )
    assert [strip for strip in strips if strip[0]] == [["segments"]]  # which is the labelled ribbon itself
    assert len(strips) >= 14
    assert all(bars == 2 and off < 2 for _, bars, off in (strip for strip in strips if not strip[0]))
    for group in ("loss", "tasks", "training"):
        plot = page.locator(f"#figures-{group} .plot").first
        plot.scroll_into_view_if_needed()
        place = plot.evaluate(
            """plot => { const { xaxis, yaxis8: strip } = plot._fullLayout, box = plot.getBoundingClientRect();
              return [box.left + xaxis._offset + xaxis.l2p(220), box.top + strip._offset + strip._length / 2]; }"""
        )
        page.mouse.move(*place)
        hover = plot.locator(".hoverlayer")
        expect(hover).to_contain_text("2: 32 × <b>TPU", timeout=WAIT)
        expect(hover).to_contain_text("from step 201 to 400")
        expect(hover).not_to_contain_text("from step 1 to")
        page.mouse.move(1, 1)


def test_a_zoom_shows_every_point_and_a_link_shows_it_again(server: Server, visit: Visit) -> None:
    segment = server.world.start("long", reference=None)
    for first in range(1, 60_001, 10_000):
        steps = list(range(first, first + 10_000))
        server.world.send(segment, steps, {"train/ce_loss": [9.5 if s == 30_200 else 3.0 + s % 7 / 10 for s in steps]})
    page = visit.go(address(server, "long"))
    whole = page.evaluate(FIGURE, "loss")
    assert len(whole["xs"]) <= 2000
    low, high = 30_000 * 1024, 30_400 * 1024
    page.evaluate(f"Plotly.relayout(document.querySelector('#figures-loss .plot'), {{'xaxis.range': [{low}, {high}]}})")
    page.wait_for_function(
        f"() => ({FIGURE})('loss').xs.filter(x => x >= {low} && x <= {high}).length === 401", timeout=WAIT
    )
    link = page.url
    assert f"from={low}&to={high}" in link
    again = visit.go(link)
    figure = again.evaluate(FIGURE, "loss")
    assert figure["range"] == [low, high]
    assert len([x for x in figure["xs"] if low <= x <= high]) == 401
    peak = again.evaluate(
        "() => Math.max(...[...document.querySelector('#figures-loss .plot')._fullData].flatMap(t => Array.from(t.y)))"
    )
    assert peak == pytest.approx(9.5)  # the spike of a single step
    again.get_by_role("button", name="Reset zoom").click()
    again.wait_for_function(f"() => ({FIGURE})('loss').xs.length === {len(whole['xs'])}", timeout=WAIT)


def test_charts_zoom_pan_and_reset_by_keyboard_alone(server: Server, visit: Visit) -> None:
    page = visit.go(address(server))
    page.get_by_label("means over points").focus()
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#figures-loss .plot')"):
            break
    else:
        pytest.fail("a chart is not reached by Tab")
    low, high = page.evaluate(FIGURE, "loss")["range"]

    def press(key: str, low: float, high: float) -> None:
        """A key, then this window in both charts and in the address."""
        page.keyboard.press(key)
        for group in ("loss", "gap"):
            page.wait_for_function(
                f"([low, high]) => {{ const [a, b] = ({FIGURE})('{group}').range;"
                " return Math.abs(a - low) + Math.abs(b - high) < 1e-6 * (high - low); }",
                arg=[low, high],
                timeout=WAIT,
            )

    width = high - low
    low, high = low + width / 4, high - width / 4
    press("+", low, high)
    assert "from=" in page.url
    press("ArrowRight", low + width / 10, high + width / 10)
    press("ArrowLeft", low, high)
    press("-", low - width / 4, high + width / 4)
    press("ArrowLeft", low - width / 4 - width / 5, high + width / 4 - width / 5)
    assert page.evaluate("document.activeElement.matches('#figures-loss .plot')")
    press("0", low - width / 4, high + width / 4)
    assert "from=" not in page.url
    expect(page.get_by_role("button", name="Reset zoom")).to_be_hidden()
    press("+", low, high)
    page.get_by_role("button", name="Reset zoom").focus()
    press("Enter", low - width / 4, high + width / 4)


def test_figures_out_of_sight_follow_a_zoom_once_they_are_scrolled_to(server: Server, visit: Visit) -> None:
    page = visit.go(address(server))
    whole = page.evaluate(FIGURE, "training")["range"]
    page.evaluate("Plotly.relayout(document.querySelector('#figures-loss .plot'), {'xaxis.range': [20480, 61440]})")
    page.wait_for_function(f"() => ({FIGURE})('gap').range[1] === 61440", timeout=WAIT)
    assert page.evaluate(FIGURE, "training")["range"] == whole  # nobody sees it: it is not drawn
    page.locator("#figures-training").scroll_into_view_if_needed()
    page.wait_for_function(f"() => ({FIGURE})('training').range[1] === 61440", timeout=WAIT)


def test_the_axis_of_time_zooms_too(server: Server, visit: Visit) -> None:
    page = visit.go(address(server))
    page.get_by_role("button", name="Wall time").click()
    page.wait_for_function(f"() => ({FIGURE})('loss').xs.at(-1) > 1.6e12", timeout=WAIT)
    xs = page.evaluate(FIGURE, "loss")["xs"]
    low, high = xs[0] - 1000, xs[-1] + 1000
    page.evaluate(f"Plotly.relayout(document.querySelector('#figures-loss .plot'), {{'xaxis.range': [{low}, {high}]}})")
    expect(page.get_by_role("button", name="Reset zoom")).to_be_visible(timeout=WAIT)
    page.wait_for_function("() => new URLSearchParams(location.search).has('from')", timeout=WAIT)
    page = visit.go(page.url)
    assert len(page.evaluate(FIGURE, "loss")["xs"]) == len(xs)


def test_choices_live_in_the_address(server: Server, visit: Visit) -> None:
    page = visit.go(address(server))
    log = page.get_by_label("logarithmic losses")
    log.focus()
    page.keyboard.press("Space")
    page.wait_for_function(
        "() => document.querySelector('#figures-loss .plot').layout.yaxis.type === 'log'", timeout=WAIT
    )
    assert page.url.endswith("?log=true")
    page.get_by_label("means over points").uncheck()
    page = visit.go(page.url)
    expect(page.get_by_label("means over points")).not_to_be_checked()
    expect(page.get_by_label("logarithmic losses")).to_be_checked()
    names = page.evaluate("() => document.querySelector('#figures-loss .plot')._fullData.map(t => t.name)")
    assert names.count("run") == 1


def test_axis_is_part_of_the_address_and_works_by_keyboard(server: Server, visit: Visit) -> None:
    page = visit.go(address(server))
    page.get_by_role("button", name="Steps").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => ({FIGURE})('loss').xs.at(-1) === 400", timeout=WAIT)
    assert page.url.endswith("?x=steps")
    page = visit.go(page.url)
    assert page.evaluate(FIGURE, "loss")["xs"][-1] == 400
    assert page.get_by_role("button", name="Steps").get_attribute("aria-pressed") == "true"


def test_theme_is_the_system_s_until_chosen_and_then_remembered(server: Server, chromium: Browser) -> None:
    context = chromium.new_context(color_scheme="dark")
    visit = Visit(context.new_page())
    page = visit.go(address(server))
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert page.evaluate(FIGURE, "loss")["ink"] == "#e6e9ed"
    page.get_by_role("button", name="Theme: as the system").click()
    page.wait_for_function(f"() => ({FIGURE})('loss').ink === '#1b1f24'", timeout=WAIT)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.reload()
    page.wait_for_function(DRAWN, timeout=WAIT)
    assert page.evaluate(FIGURE, "loss")["ink"] == "#1b1f24"
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    context.close()
    assert not visit.errors


def test_a_phone_needs_no_sideways_scrolling(server: Server, chromium: Browser) -> None:
    world = server.world
    long = "a" * 200 + "<script>alert(1)</script>"
    segment = world.start(long, project=long, stage=long)
    world.train(segment, 1, 60)
    world.send(segment, [60], {"heldout/" + "h" * 200 + "/ce_loss": [3.0]})
    context = chromium.new_context(viewport={"width": 375, "height": 812}, is_mobile=True, has_touch=True)
    visit = Visit(context.new_page())
    paths = ["/", "/alerts", f"/alerts/{alert_id(server)}", "/references", "/references/lab", "/references/olmo3-7b"]
    for path in [*paths, f"/runs/{world.run_id('v7x')}", f"/runs/{world.run_id(long)}"]:
        page = visit.go(server.url + path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 375, f"{path} is {width} wide"
    context.close()
    assert not visit.errors


def test_acknowledging_an_alert(server: Server, visit: Visit) -> None:
    page = visit.go(f"{server.url}/alerts/{alert_id(server)}")
    page.get_by_label("Your name").fill("Ada")
    context = server.app.state.context
    with writing(context.engine) as session:
        row = AlertRepository(session).by_uuid(UUID(alert_id(server)))
        assert row is not None
        row.alert.title = "v7x: it changed meanwhile"
    context.broker.publish("alert", {"run": server.world.run_id("v7x")})
    expect(page).to_have_title("v7x: it changed meanwhile · Pacenote", timeout=WAIT)  # the page was refreshed
    expect(page.get_by_label("Your name")).to_have_value("Ada")
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator(".history")).to_contain_text("Acknowledged by Ada", timeout=WAIT)
    assert server.world.client.get(f"/api/v1/alerts/{alert_id(server)}").json()["state"] == "acknowledged"


def test_a_link_in_a_chat_opens_the_page_for_whoever_is_signed_in(
    tmp_path: Path, incident_file: Path, chromium: Browser
) -> None:
    """localhost and 127.0.0.1 are two sites to a browser: the strict cookie is not sent along with the click."""
    with Server(make_settings(tmp_path, incident_file, token=SecretStr(TOKEN))) as server:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"{server.url}/alerts")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Alerts")).to_be_visible(timeout=WAIT)
        other = server.url.replace("127.0.0.1", "localhost")
        page.goto(f"{other}/")  # another site, where nobody is signed in
        page.evaluate("href => { document.body.innerHTML = `<a href='${href}'>the alert</a>` }", f"{server.url}/alerts")
        page.get_by_role("link", name="the alert").click()
        expect(page.get_by_role("heading", name="Alerts")).to_be_visible(timeout=WAIT)
        context.close()
