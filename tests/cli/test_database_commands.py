"""Commands that work on the database: schema, references, channels, sync of nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from service.cli.main import app
from service.database.engine import open_engine
from service.database.migrate import head_revision

runner = CliRunner()


@pytest.fixture
def address(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A migrated database, named by the environment."""
    monkeypatch.setenv("PACENOTE_DATABASE_URL", database_url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("PACENOTE_TOKEN", raising=False)
    return database_url


def head(address: str) -> str:
    engine = open_engine(address)
    revision = head_revision(engine)
    engine.dispose()
    return revision


def call(*arguments: str, status: int = 0) -> str:
    result = runner.invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result.output


def test_schema(address: str) -> None:
    assert f"(this program works with {head(address)})" in call("database", "current")
    assert "already" in call("database", "upgrade")


def test_an_empty_database_is_upgraded(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert "There is no database" in call("database", "current", "--database-url", url, status=3)
    assert not (tmp_path / "new.db").exists()
    assert "it was empty" in call("database", "upgrade", "--database-url", url)
    assert call("database", "current", "--database-url", url).startswith(head(url))


def test_an_unknown_revision_is_not_upgraded(address: str) -> None:
    engine = open_engine(address)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    said = call("database", "upgrade", status=3)
    assert said.count("\n") == 1
    assert f"revision 9999, which this program ({head(address)}) does not know" in said


def test_references(address: str) -> None:
    listed = call("reference", "list")
    assert "olmo3-7b" in listed
    assert "https://wandb.ai/ai2-llm/Olmo-3-1025-7B" in listed
    shown = call("reference", "show", "olmo3-7b")
    assert "1,413,814" in shown
    assert "none published" in shown
    assert "5,929,965,715,456" in shown
    assert "1,414,078" in shown, "conflicts are shown"
    assert "There is no reference nothing; there are" in call("reference", "show", "nothing", status=2)
    assert "no reference olmo3-7b 9" in call("reference", "show", "olmo3-7b", "--version", "9", status=2)


def test_channels(address: str) -> None:
    assert "Secret, not shown again: whsec_" in call("channel", "add", "hook", "webhook", "https://example.com/hook")
    assert "hook" in call("channel", "list")
    assert "whsec_" not in call("channel", "list")
    assert "already" in call("channel", "add", "hook", "webhook", "https://example.com/hook", status=2)
    assert "no project" in call(
        "channel", "add", "other", "webhook", "https://example.com/", "--project", "none", status=2
    )
    assert "pacenote: " in call("channel", "add", "near", "webhook", "http://127.0.0.1:1/", status=2)
    assert "there are: hook" in call("channel", "remove", "nothing", status=2)
    assert "removed" in call("channel", "remove", "hook")
    assert "hook" not in call("channel", "list")


def test_a_channel_that_does_not_answer(address: str) -> None:
    call("channel", "add", "dead", "webhook", "http://127.0.0.1:9/", "--allow-private-channels")
    assert "did not arrive" in call("channel", "test", "dead", "--allow-private-channels", status=1)


def test_sync_of_an_empty_spool(tmp_path: Path) -> None:
    assert "0 spools" in call("sync", "http://127.0.0.1:9", "--spool", str(tmp_path))
    assert "pacenote: " in call("sync", "not an address", "--spool", str(tmp_path), status=2)
    missing = str(tmp_path / "mistyped")
    assert (
        call("sync", "http://127.0.0.1:9", "--spool", missing, status=2) == f"pacenote: There is no folder {missing}.\n"
    )


def test_sync_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_SPOOL_DIR", str(tmp_path))
    monkeypatch.delenv("PACENOTE_URL", raising=False)
    assert f"0 spools in {tmp_path}: " in call("sync")


def test_names_are_shown_as_they_are_and_whole(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "[/] :smile: " + "n" * 60
    call("channel", "add", name, "webhook", "https://example.com/hook")
    assert name in call("channel", "list")
    monkeypatch.setenv("COLUMNS", "60")
    assert "…" not in call("channel", "list").replace("https://example.com/…", "")
    assert call("reference", "list").count("…") == 0


def test_lab_record_says_at_once_that_it_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reproduction.lab import record

    monkeypatch.setattr(record, "record", lambda *_, **__: pytest.fail("it trained"))
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        said = call("lab", "record", "--out", str(out), status=2)
        assert said.startswith(f"pacenote: Cannot write into {out}: ")
        assert said.count("\n") == 1


def test_lab_record_hands_over_the_tolerance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reproduction.lab import record
    from service.compare.noise import sibling_tolerance

    called: list[tuple[object, ...]] = []

    def instead(out: Path, measure: object, *, keep_base: bool, should_stop: object) -> None:
        called.append((out, measure, keep_base))

    monkeypatch.setattr(record, "record", instead)
    assert str(tmp_path) in call("lab", "record", "--out", str(tmp_path), "--keep-base")
    assert called == [(tmp_path, sibling_tolerance, True)]
