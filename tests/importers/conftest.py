"""A database that costs little, for tests that do not look at how the store does its work."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.database.engine import open_engine
from service.database.migrate import ensure_schema


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the current schema, to be copied."""
    path = tmp_path_factory.mktemp("empty") / "pacenote.db"
    engine = open_engine(f"sqlite:///{path}")
    ensure_schema(engine)
    engine.dispose()
    return path


@pytest.fixture
def database(empty_database: Path, tmp_path: Path) -> Iterator[Engine]:
    """An engine on a fresh SQLite file."""
    path = tmp_path / "database" / "pacenote.db"
    path.parent.mkdir()
    shutil.copy(empty_database, path)
    engine = open_engine(f"sqlite:///{path}")
    yield engine
    engine.dispose()
