"""Models and migrations agree on both databases; what cannot be used is said in one line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from service.database.engine import DatabaseUrlError, open_engine, reading, writing
from service.database.migrate import SchemaError, alembic_config, current_revision, ensure_schema, head_revision
from service.database.models import Base, Project


def test_models_and_migrations_agree(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_every_constraint_has_its_name(engine: Engine) -> None:
    inspector = inspect(engine)
    for table in Base.metadata.tables:
        assert inspector.get_pk_constraint(table)["name"] == f"pk_{table}"
        for key in inspector.get_foreign_keys(table):
            assert key["name"] == f"fk_{table}_{key['constrained_columns'][0]}_{key['referred_table']}"


def test_goes_down_and_up_again(engine: Engine) -> None:
    command.downgrade(alembic_config(engine), "base")
    assert set(inspect(engine).get_table_names()) == {"alembic_version"}
    assert current_revision(engine) is None
    command.upgrade(alembic_config(engine), "head")
    assert current_revision(engine) == head_revision(engine)
    assert set(Base.metadata.tables) <= set(inspect(engine).get_table_names())
    ensure_schema(engine)


def test_storage_is_tuned(engine: Engine) -> None:
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            sql = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = 'receipt'")).scalar_one()
            assert "WITHOUT ROWID" in sql
            pragmas = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            }
            assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
            return
        external = connection.execute(
            text(
                "SELECT count(*) FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
                "WHERE relname IN ('journal', 'chunk', 'fingerprint', 'item_result') AND atttypid = 'bytea'::regtype "
                "AND attstorage <> 'e'"
            )
        ).scalar_one()
        assert external == 0
        options = connection.execute(text("SELECT reloptions FROM pg_class WHERE relname = 'journal'")).scalar_one()
        assert {"autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=2000"} <= set(options)


def test_overviews_find_summaries_before_the_packed_arrays() -> None:
    columns = list(Base.metadata.tables["chunk"].columns.keys())
    assert columns[-3:] == ["summary", "steps", "values"]


def test_another_revision_is_refused(engine: Engine) -> None:
    with writing(engine) as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'other'"))
    with pytest.raises(SchemaError, match=r"revision other.*pacenote database upgrade"):
        ensure_schema(engine)


def test_somebody_elses_tables_are_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    engine = open_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(SchemaError, match="theirs"):
        ensure_schema(engine)
    engine.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://localhost/x",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////dev/null/folder/x.db",
        "sqlite:////proc/x.db",
    ],
)
def test_addresses_that_cannot_be_used(url: str) -> None:
    with pytest.raises(DatabaseUrlError) as raised:
        open_engine(url)
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    text_file = tmp_path / "notes.txt"
    text_file.write_text("this is no database, and long enough to be told from one\n" * 10)
    before = text_file.read_bytes()
    for path in (text_file, tmp_path):
        with pytest.raises(DatabaseUrlError, match=str(path)) as raised:
            open_engine(f"sqlite:///{path}")
        assert "\n" not in str(raised.value)
    assert text_file.read_bytes() == before


def test_a_server_that_is_not_there() -> None:
    engine = open_engine("postgresql://user:secret@127.0.0.1:1/none")
    with pytest.raises(DatabaseUrlError, match=r"127\.0\.0\.1") as raised:
        ensure_schema(engine)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_reader_sees_one_moment(engine: Engine) -> None:
    with reading(engine) as session:
        assert session.query(Project).count() == 0
        with writing(engine) as other:
            other.add(Project(slug="p", created_at=1.0))
        assert session.query(Project).count() == 0
    with reading(engine) as session:
        assert session.query(Project).count() == 1


def test_nothing_is_written_if_anything_is_raised(engine: Engine) -> None:
    def fail() -> None:
        with writing(engine) as session:
            session.add(Project(slug="p", created_at=1.0))
            session.flush()
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    with reading(engine) as session:
        assert session.query(Project).count() == 0
