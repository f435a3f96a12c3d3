"""A service on a fresh SQLite file: inside the test process for pages, behind a real port for the browser."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Error as PlaywrightError
from pydantic import SecretStr

from service.app import create_app
from service.database.engine import open_engine
from service.database.migrate import ensure_schema
from service.settings import Settings
from tests.web.world import World

TOKEN = "a-token-of-this-test-only"


def make_settings(folder: Path, template: Path | None = None, **more: object) -> Settings:
    """Settings on a SQLite file in `folder`: a copy of `template`, or a fresh one with the current schema.

    Nothing runs in the background: tests judge when they want to.
    """
    path = folder / "pacenote.db"
    if template is None:
        engine = open_engine(f"sqlite:///{path}")
        ensure_schema(engine)
        engine.dispose()
    else:
        shutil.copy(template, path)
    return Settings(database_url=f"sqlite:///{path}", worker=False, **more)  # type: ignore[arg-type]


@contextmanager
def serving(settings: Settings) -> Iterator[World]:
    """A service inside this process, and who speaks to it."""
    app = create_app(settings)
    with TestClient(app, follow_redirects=False) as client:
        yield World(client, app.state.context)


@pytest.fixture(scope="session")
def references_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the shipped references."""
    folder = tmp_path_factory.mktemp("references")
    with serving(make_settings(folder)) as world:
        world.install_references()
    return folder / "pacenote.db"


@pytest.fixture(scope="session")
def incident_file(tmp_path_factory: pytest.TempPathFactory, references_file: Path) -> Path:
    """The same with a run `v7x` that was caught reading every row again, alert and all."""
    folder = tmp_path_factory.mktemp("incident")
    with serving(make_settings(folder, references_file)) as world:
        segment = world.start("v7x")
        world.train(segment, 1, 400)
        world.event(segment, 200, "checkpoint", "gs://bucket/200")
        world.judge()
    return folder / "pacenote.db"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an open service whose database is empty."""
    with serving(make_settings(tmp_path)) as world:
        yield world.client  # type: ignore[misc]


@pytest.fixture
def world(tmp_path: Path, references_file: Path) -> Iterator[World]:
    """An open service with the shipped references."""
    with serving(make_settings(tmp_path, references_file)) as world:
        yield world


@pytest.fixture
def incident(tmp_path: Path, incident_file: Path) -> Iterator[World]:
    """An open service with the run `v7x` and its alert."""
    with serving(make_settings(tmp_path, incident_file)) as world:
        yield world


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[TestClient]:
    """A client of a service with a token, which it does not send."""
    app = create_app(make_settings(tmp_path, token=SecretStr(TOKEN)))
    with TestClient(app, follow_redirects=False) as client:
        yield client


class Server:
    """An application behind a port of its own, in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.app = create_app(settings.model_copy(update={"port": self.port}))
        config = uvicorn.Config(self.app, log_level="warning", timeout_graceful_shutdown=1, lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        with httpx.Client(base_url=self.url, transport=httpx.HTTPTransport(retries=10)) as client:
            client.get("/healthz")  # the socket listens already: the answer comes once the server is up
        self.world = World(httpx.Client(base_url=self.url), self.app.state.context)
        return self

    def __exit__(self, *_: object) -> None:
        self.world.client.close()
        self._server.should_exit = True
        self._thread.join(10)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium. Without one these tests are skipped, but never in CI."""
    from benchmarks.screenshots import FLAGS, chromium_path

    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        except PlaywrightError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(
                f"no Chromium to start: install Debian's `chromium`, or set PACENOTE_CHROMIUM ({error.message})"
            )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, incident_file: Path) -> Iterator[Server]:
    """An open service behind a port, with the run `v7x` and its alert; its tests name their own runs."""
    with Server(make_settings(tmp_path_factory.mktemp("server"), incident_file)) as server:
        yield server
