"""News in a real browser: one stream for all tabs, none while nobody looks, and what is done where there is none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect
from pydantic import SecretStr
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.web.conftest import TOKEN, Server, make_settings
from tests.web.visit import WAIT, Visit

TABS = 8
NEWEST = """() => { const plot = document.querySelector('#figures-loss .plot');
  return plot?._fullData?.findLast(t => t.name === 'run')?.x.at(-1); }"""
HIDE = """hidden => {
  Object.defineProperty(document, 'hidden', { get: () => hidden, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""
NO_WORKER = "delete window.SharedWorker"


HASTE = """const later = setTimeout, every = setInterval;
  window.setTimeout = (f, ms) => later(f, ms / 10); window.setInterval = (f, ms) => every(f, ms / 10);"""


class Door:
    """Stands before a service: refuses streams while it is shut; `slam` cuts those that are open."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._cuts: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def slam(self) -> None:
        """End every open stream, as a proxy does that has had enough; from any thread."""
        for loop, cut in list(self._cuts):
            loop.call_soon_threadsafe(cut.set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/api/v1/events":
            await self.app(scope, receive, send)
            return
        state = scope["app"].state
        state.door = self
        if state.shut:
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        cut = asyncio.Event()
        known = (asyncio.get_running_loop(), cut)
        self._cuts.add(known)

        async def heard() -> Message:
            waiting = [asyncio.ensure_future(one) for one in (receive(), cut.wait())]
            done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            return {"type": "http.disconnect"} if cut.is_set() else done.pop().result()

        try:
            await self.app(scope, heard, send)
        finally:
            self._cuts.discard(known)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, references_file: Path) -> Iterator[Server]:
    server = Server(make_settings(tmp_path_factory.mktemp("live"), references_file))
    server.app.state.shut = False
    server.app.add_middleware(Door)
    with server:
        yield server


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A browser of its own for each test: tabs of one context share a worker."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    yield context
    context.close()


def until(true: Callable[[], bool], page: Page) -> None:
    """Wait for something at the server, while the browser goes on."""
    end = time.monotonic() + WAIT / 1000
    while not true():
        assert time.monotonic() < end, "waited in vain"
        page.evaluate("() => new Promise(resolve => requestAnimationFrame(resolve))")


class Asked:
    """What a page has asked for, from now on."""

    def __init__(self, page: Page) -> None:
        self.urls: list[str] = []
        self._open: set[Request] = set()
        self._page = page
        page.on("request", self._begun)
        page.on("requestfinished", self._done)
        page.on("requestfailed", self._done)

    def _begun(self, request: Request) -> None:
        if request.resource_type in ("document", "fetch"):
            self.urls.append(request.url)
            self._open.add(request)

    def _done(self, request: Request) -> None:
        self._open.discard(request)

    def settle(self) -> None:
        """Wait until everything is answered, and one more turn through browser and server."""
        until(lambda: not self._open, self._page)
        self._page.evaluate("fetch('/healthz').then(answer => answer.text())")
        until(lambda: not self._open, self._page)
        self.urls = [url for url in self.urls if not url.endswith("/healthz")]


def listeners(server: Server) -> int:
    return server.app.state.context.broker.listeners


def started(server: Server, name: str) -> tuple[str, str]:
    """A run with 60 steps: its segment, and its page."""
    world = server.world
    segment = world.start(name)
    world.train(segment, 1, 60)
    return segment, f"{server.url}/runs/{world.run_id(name)}"


def shows(page: Page, step: int) -> None:
    page.wait_for_function(f"() => ({NEWEST})() === {step} * 1024", timeout=WAIT)


def live_pages(context: BrowserContext, address: str, number: int) -> list[Visit]:
    """So many pages of one address, each of which says that it is live."""
    visits = [Visit(context.new_page()) for _ in range(number)]
    for visit in visits:
        visit.go(address)
        expect(visit.page.locator("#live")).to_have_text("Live", timeout=WAIT)
    return visits


def test_eight_tabs_hear_of_everything_over_one_stream(server: Server, context: BrowserContext) -> None:
    segment, address = started(server, "tabs")
    visits = live_pages(context, address, TABS)
    assert listeners(server) == 1
    server.world.train(segment, 61, 120)
    for visit in visits:
        shows(visit.page, 120)
    assert listeners(server) == 1
    visits[0].go(f"{server.url}/alerts")  # one more page is answered: no tab sits on a connection
    for visit in visits:
        visit.page.close()
        assert not visit.errors


def test_a_hidden_tab_is_quiet_and_catches_up_when_shown(server: Server, context: BrowserContext) -> None:
    segment, address = started(server, "hidden")
    visit = Visit(context.new_page())
    asked = Asked(visit.page)
    page = visit.go(address)
    expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)
    page.evaluate(HIDE, True)
    until(lambda: listeners(server) == 0, page)
    asked.settle()
    asked.urls.clear()
    server.world.train(segment, 61, 120)
    asked.settle()
    assert asked.urls == []
    page.evaluate(HIDE, False)
    shows(page, 120)
    until(lambda: listeners(server) == 1, page)
    assert not visit.errors


def test_a_hidden_tab_is_quiet_while_another_one_hears(server: Server, context: BrowserContext) -> None:
    segment, address = started(server, "two")
    shown, hidden = Visit(context.new_page()), Visit(context.new_page())
    for visit in (shown, hidden):
        visit.go(address)
        expect(visit.page.locator("#live")).to_have_text("Live", timeout=WAIT)
    hidden.page.evaluate(HIDE, True)
    asked = Asked(hidden.page)
    server.world.train(segment, 61, 120)
    shows(shown.page, 120)
    asked.settle()
    assert asked.urls == []
    hidden.page.evaluate(HIDE, False)
    shows(hidden.page, 120)  # from the worker's memory: the stream has told it before
    assert listeners(server) == 1
    shown.page.close()
    hidden.page.close()
    assert not shown.errors + hidden.errors


def test_the_stream_ends_with_the_last_tab(server: Server, context: BrowserContext) -> None:
    _, address = started(server, "closing")
    first, second = Visit(context.new_page()), Visit(context.new_page())
    for visit in (first, second):
        visit.go(address)
        expect(visit.page.locator("#live")).to_have_text("Live", timeout=WAIT)
    first.page.close()
    second.go(address)
    assert listeners(server) == 1
    second.page.goto("about:blank")
    until(lambda: listeners(server) == 0, second.page)


def test_nothing_is_read_again_when_nothing_has_happened(server: Server, context: BrowserContext) -> None:
    """The page says what it knows of: opening the stream is no news."""
    _, address = started(server, "calm")
    visit = Visit(context.new_page())
    asked = Asked(visit.page)
    page = visit.go(address)
    expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)
    asked.settle()
    assert asked.urls.count(address) == 1
    assert len([url for url in asked.urls if "/figures/loss" in url]) == 1


def test_without_shared_workers_each_page_has_a_stream(server: Server, context: BrowserContext) -> None:
    segment, address = started(server, "alone")
    context.add_init_script(NO_WORKER)
    visits = live_pages(context, address, 2)
    assert listeners(server) == 2
    server.world.train(segment, 61, 120)
    for visit in visits:
        shows(visit.page, 120)
        assert not visit.errors


def test_a_worker_that_cannot_be_loaded_is_done_without(server: Server, context: BrowserContext) -> None:
    segment, address = started(server, "broken")
    context.add_init_script(
        "const Real = SharedWorker; window.SharedWorker = function (_url, how) { return new Real('/nothing.js', how); }"
    )
    page = context.new_page()
    Visit(page).go(address)
    expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)
    server.world.train(segment, 61, 120)
    shows(page, 120)


@pytest.mark.parametrize("script", ["", NO_WORKER], ids=["worker", "page"])
def test_without_a_stream_it_polls(server: Server, context: BrowserContext, script: str) -> None:
    segment, address = started(server, f"polling {bool(script)}")
    context.add_init_script(script + "; const every = setInterval; window.setInterval = (f, ms) => every(f, ms / 10);")
    server.app.state.shut = True
    try:
        page = context.new_page()
        Visit(page).go(address)
        expect(page.locator("#live")).to_have_text("Polling", timeout=WAIT)
        server.world.train(segment, 61, 120)
        shows(page, 120)
    finally:
        server.app.state.shut = False
    Visit(context.new_page()).go(address)  # whoever loads a page makes the worker try again, for all
    if not script:
        expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)


def test_polling_alone_brings_news(server: Server, context: BrowserContext) -> None:
    """Neither the tab's heartbeat to its hub nor a new try of the stream, which make it ask too."""
    segment, address = started(server, "polled only")
    context.add_init_script(
        NO_WORKER + "; const every = setInterval;"
        " window.setInterval = (f, ms) => every(f, ms === 10000 ? 200 : 2 ** 30);"
    )
    server.app.state.shut = True
    try:
        page = context.new_page()
        asked = Asked(page)
        Visit(page).go(address)
        expect(page.locator("#live")).to_have_text("Polling", timeout=WAIT)
        server.world.train(segment, 61, 120)
        until(lambda: len([url for url in asked.urls if url == address]) > 3, page)
        shows(page, 120)
        server.world.train(segment, 121, 160)
        shows(page, 160)
    finally:
        server.app.state.shut = False


def test_a_stream_that_is_cut_is_polled_for_until_it_is_back(server: Server, context: BrowserContext) -> None:
    segment, address = started(server, "cut")
    context.add_init_script(NO_WORKER + ";" + HASTE)
    page = context.new_page()
    Visit(page).go(address)
    expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)
    state = server.app.state
    state.shut = True
    try:
        state.door.slam()
        expect(page.locator("#live")).to_have_text("Polling", timeout=WAIT)
        assert listeners(server) == 0
        server.world.train(segment, 61, 120)
        shows(page, 120)
    finally:
        state.shut = False
    expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)  # by itself
    server.world.train(segment, 121, 160)
    shows(page, 160)


def test_who_signs_out_in_one_tab_is_told_in_the_others(
    tmp_path: Path, incident_file: Path, context: BrowserContext
) -> None:
    with Server(make_settings(tmp_path, incident_file, token=SecretStr(TOKEN))) as server:
        first, second = context.new_page(), context.new_page()

        def sign_in(page: Page) -> None:
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("heading", name="Alerts")).to_be_visible(timeout=WAIT)

        first.goto(f"{server.url}/alerts")
        sign_in(first)
        second.goto(f"{server.url}/")
        for page in (first, second):
            expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)
        assert listeners(server) == 1
        first.get_by_role("button", name="Sign out").click()
        expect(second.locator("#live")).to_have_text("Signed out", timeout=WAIT)
        assert listeners(server) == 0
        first.goto(f"{server.url}/alerts")
        sign_in(first)
        expect(second.locator("#live")).to_have_text("Live", timeout=WAIT)
        assert listeners(server) == 1


def test_under_a_sub_path_worker_figures_and_pictures_are_there_too(
    tmp_path: Path, incident_file: Path, context: BrowserContext
) -> None:
    settings = make_settings(tmp_path, incident_file, public_url="http://127.0.0.1/tools/pacenote/")
    with Server(settings) as server:
        visit = Visit(context.new_page())
        page = visit.go(f"{server.url}/tools/pacenote/runs/{server.world.run_id('v7x')}")
        expect(page.locator("#live")).to_have_text("Live", timeout=WAIT)
        assert listeners(server) == 1
        page = visit.go(f"{server.url}/tools/pacenote/")
        page.wait_for_function("() => [...document.images].every(image => image.complete && image.naturalWidth > 0)")
        assert not visit.errors
