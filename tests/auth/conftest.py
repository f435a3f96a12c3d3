"""A migrated SQLite file, made once and copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from service.database.engine import open_engine
from service.database.migrate import ensure_schema
from service.settings import sqlite_url


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "empty.db"
    engine = open_engine(sqlite_url(path))
    ensure_schema(engine)
    engine.dispose()
    return path


@pytest.fixture
def sqlite(migrated: Path, tmp_path: Path) -> str:
    """Address of a fresh database."""
    return sqlite_url(Path(shutil.copy(migrated, tmp_path / "auth.db")))
