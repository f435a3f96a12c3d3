"""A judged world and a client of its service, for the folders whose conftest imports them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from judged_world import JudgedWorld
from sqlalchemy import Engine

from service.app import create_app
from service.settings import Settings


@pytest.fixture
def world(engine: Engine) -> JudgedWorld:
    return JudgedWorld(engine)


@pytest.fixture
def client(database_url: str) -> Iterator[TestClient]:
    with TestClient(
        create_app(Settings(database_url=database_url, worker=False)), base_url="http://test/api/v1"
    ) as client:
        yield client
