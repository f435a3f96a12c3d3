"""A store that answers HTTP, on both kinds of database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from service.settings import Settings
from tests.ingest.store_client import Store, create_store


@pytest.fixture
def http(database_url: str) -> Iterator[TestClient]:
    with TestClient(create_store(Settings(database_url=database_url))) as client:
        yield client


@pytest.fixture
def store(http: TestClient) -> Store:
    return Store(http)
