"""Pictures of the pages: `python -m benchmarks.screenshots DATABASE FOLDER` writes PNGs of what a database shows.

The newest run, the newest alert, the lists and every reference, in both themes, on a desk and on a phone.
Needs Playwright and a Chromium (PACENOTE_CHROMIUM, else the one on the path, else Playwright's own).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from service.app import create_app
from service.settings import Settings

SIZES = {"desk": (1400, 900), "phone": (390, 844)}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def chromium_path() -> str | None:
    """A Chromium to start, None for Playwright's own."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("PACENOTE_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def serving(database_url: str) -> Generator[str]:
    """The pages of a database on a free port of loopback; nothing is judged or sent meanwhile."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # who comes before the server is up waits, and is not refused
    port = listener.getsockname()[1]
    app = create_app(Settings(database_url=database_url, port=port, worker=False, token=None))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


def addresses(url: str) -> dict[str, str]:
    """The pages worth a picture, by name."""
    found = {"runs": "/", "alerts": "/alerts", "references": "/references", "settings": "/settings"}
    with httpx.Client(base_url=url, timeout=30) as client:
        runs = client.get("/api/v1/runs", params={"role": "reproduction", "limit": 1}).json()["items"]
        alerts = client.get("/api/v1/alerts", params={"limit": 1}).json()["items"]
        references = client.get("/api/v1/references").json()["items"]
    if runs:
        run = runs[0]["id"]
        found |= {"run": f"/runs/{run}", "rules": f"/settings/runs/{run}", "report": f"/reports/{run}"}
        found["compare"] = f"/compare?run={run}"
    if alerts:
        found["alert"] = f"/alerts/{alerts[0]['id']}"
    return found | {f"reference-{r['slug']}": f"/references/{r['slug']}" for r in references}


def settle(page: Page) -> None:
    """Wait until every figure is drawn, or says why not; pictures far below are loaded too."""
    page.evaluate("document.querySelectorAll('img[loading=lazy]').forEach(picture => picture.loading = 'eager')")
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-figures]')].every(g => g.dataset.state === 'drawn')", timeout=60_000
    )


def take(browser: Browser, url: str, folder: Path) -> list[Path]:
    """All pictures; their paths."""
    taken: list[Path] = []
    for size, (width, height) in SIZES.items():
        for theme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=theme,
                device_scale_factor=2 if size == "phone" else 1,
                is_mobile=size == "phone",
                has_touch=size == "phone",
            )
            page = context.new_page()
            for name, path in addresses(url).items():
                answer = page.goto(url + path)
                if answer is None or not answer.ok:
                    raise SystemExit(f"{url}{path} answered {answer.status if answer else 'nothing'}")
                settle(page)
                target = folder / f"{name}-{size}-{theme}.png"
                page.screenshot(path=target, full_page=True, animations="disabled")
                taken.append(target)
            context.close()
    return taken


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screenshots", description="Pictures of the pages.")
    parser.add_argument("database", help="a database address, or the path of a SQLite file")
    parser.add_argument("folder", type=Path, help="where the PNGs go")
    arguments = parser.parse_args(argv)
    database: str = arguments.database
    if "://" not in database:
        if not Path(database).is_file():
            print(f"There is no database file {database}.", file=sys.stderr)
            return 2
        database = f"sqlite:///{database}"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with serving(database) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        for path in take(browser, url, arguments.folder):
            print(path)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
