"""A service on a fresh SQLite file: inside the test process for pages, behind a real port for the browser."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient
from pydantic import SecretStr

from service.app import create_app
from service.database.engine import open_engine
from service.database.migrate import ensure_schema
from service.settings import Settings
from tests.web.world import World

TOKEN = "a-token-of-this-test-only"


def make_settings(folder: Path, **more: object) -> Settings:
    """Settings on a fresh, migrated SQLite file, without background tasks: tests judge when they want to."""
    url = f"sqlite:///{folder / 'pacenote.db'}"
    engine = open_engine(url)
    ensure_schema(engine)
    engine.dispose()
    return Settings(database_url=url, worker=False, **more)  # type: ignore[arg-type]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an open service."""
    with TestClient(create_app(make_settings(tmp_path)), follow_redirects=False) as client:
        yield client


@pytest.fixture
def world(client: TestClient) -> World:
    """An open service with the shipped references."""
    world = World(client, client.app.state.context)  # type: ignore[attr-defined]
    world.install_references()
    return world


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
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """An open service behind a port."""
    with Server(make_settings(tmp_path)) as server:
        yield server
