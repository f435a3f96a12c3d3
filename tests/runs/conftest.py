"""The real application over a real database, spoken to over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from runs_world import Api

from service.app import create_app
from service.settings import Settings


@pytest.fixture
def client(database_url: str) -> Iterator[TestClient]:
    """The service without its worker, on a fresh database."""
    with TestClient(create_app(Settings(database_url=database_url, worker=False))) as client:
        yield client


@pytest.fixture
def api(client: TestClient) -> Api:
    """The service, with shorthands."""
    return Api(client)
