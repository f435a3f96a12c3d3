"""A store that answers HTTP, on both kinds of database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.database.engine import open_engine
from service.database.migrate import ensure_schema
from service.settings import Settings
from tests.ingest.store_client import Store, create_store


@pytest.fixture
def http(database_url: str) -> Iterator[TestClient]:
    with TestClient(create_store(Settings(database_url=database_url))) as client:
        yield client


@pytest.fixture
def store(http: TestClient) -> Store:
    return Store(http)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for many tests of what is refused before any database is asked."""
    path: Path = tmp_path_factory.mktemp("quick") / "pacenote.db"
    url = f"sqlite:///{path}"
    engine = open_engine(url)
    ensure_schema(engine)
    engine.dispose()
    with TestClient(create_store(Settings(database_url=url))) as client:
        yield Store(client)
