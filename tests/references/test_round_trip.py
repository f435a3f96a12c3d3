"""An installed reference that is written out and installed elsewhere is the same, whatever its first bundle was."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.database.engine import open_engine, reading, writing
from service.database.migrate import ensure_schema
from service.errors import ConflictError
from service.references.archive import bundle_files
from service.references.bundle import BundleError, load_bundle
from service.references.exporting import export_reference
from service.references.repository import ReferenceRepository
from service.references.shipped import shipped_bundles

SILENT = """stage,segment,launched,note
stage1,a,2025-07-21T06:03:59Z,
stage1,nothing,2025-07-21T07:00:00Z,logged nothing
stage1,also,2025-07-21T08:00:00Z,died at once; logged nothing
stage1,b,2025-07-22T06:03:59Z,restart
stage1,last,2025-07-23T06:03:59Z,
"""
UNTIMED = "stage,segment,launched,note\nstage1,zero,,\nstage1,b,,\nstage1,none,,x\nstage1,a,,\n"
SECOND = (
    '[[tasks]]\nkey = "arc"',
    ('[[stages]]\nname = "stage2"\nsteps = 10\ntokens_per_step = 512\ntoken_offset = 51200\n\n[[tasks]]\nkey = "arc"'),
)


@pytest.fixture(params=["as it is", "silent", "untimed", "no segments", "a stage without series", "doubled"])
def bundle(request: pytest.FixtureRequest, small: Path) -> Path:
    segments, toml, series = small / "segments.csv", small / "reference.toml", small / "series" / "stage1.csv"
    if request.param == "silent":
        segments.write_text(SILENT)
    elif request.param == "untimed":
        segments.write_text(UNTIMED)
    elif request.param == "no segments":
        segments.unlink()
    elif request.param == "a stage without series":
        toml.write_text(toml.read_text().replace(*SECOND))
        segments.write_text(SILENT + "stage2,waits,,\n")
    elif request.param == "doubled":
        series.write_text(series.read_text() + "5,train/ce_loss,-0.0,b\n6,train/ce_loss,inf,b\n")
    return small


def installed(url: str, path: Path) -> Engine:
    engine = open_engine(url)
    ensure_schema(engine)
    with writing(engine) as session:
        ReferenceRepository(session).install(load_bundle(path))
    return engine


def exported(engine: Engine, target: Path) -> Path:
    with reading(engine) as session:
        reference = ReferenceRepository(session).current("small")
        assert reference is not None
        return export_reference(session, reference, target)


def test_what_goes_out_comes_back_the_same(bundle: Path, tmp_path: Path) -> None:
    first = installed(f"sqlite:///{tmp_path / 'first.db'}", bundle)
    out = exported(first, tmp_path / "out.pacenote")
    assert load_bundle(out).digest == load_bundle(bundle).digest
    assert load_bundle(out).description.silent == load_bundle(bundle).description.silent
    second = installed(f"sqlite:///{tmp_path / 'second.db'}", out)
    again = exported(second, tmp_path / "again.pacenote")
    assert again.read_bytes() == out.read_bytes()
    with writing(first) as session:
        ReferenceRepository(session).install(load_bundle(out))  # no other content, so no conflict


def test_launches_that_logged_nothing_stay_in_their_places(small: Path, tmp_path: Path) -> None:
    (small / "segments.csv").write_text(SILENT)
    out = exported(installed(f"sqlite:///{tmp_path / 'a.db'}", small), tmp_path / "out.pacenote")
    rows = bundle_files(out)["segments.csv"].decode().splitlines()
    assert rows[1:] == [
        "stage1,a,2025-07-21T06:03:59Z,3,",
        "stage1,nothing,2025-07-21T07:00:00Z,,logged nothing",
        "stage1,also,2025-07-21T08:00:00Z,,died at once; logged nothing",
        "stage1,b,2025-07-22T06:03:59Z,4,restart",
        "stage1,last,2025-07-23T06:03:59Z,,logged nothing",
    ]


def test_the_digest_sees_launches_and_values(small: Path) -> None:
    found = {load_bundle(small).digest}
    for name, before, after in (
        ("segments.csv", "restart", "a restart"),
        ("segments.csv", "2025-07-22", "2025-07-23"),
        ("series/stage1.csv", "3.26", "3.260000001"),
        ("reference.toml", "A small run", "The small run"),
    ):
        path = small / name
        path.write_text(path.read_text().replace(before, after))
        found.add(load_bundle(small).digest)
    assert len(found) == 5
    toml = small / "reference.toml"
    toml.write_text("silent = []\n" + toml.read_text())
    with pytest.raises(BundleError, match=r"stand in segments\.csv"):
        load_bundle(small)


def test_a_database_that_holds_the_digest_of_the_files(small: Path, tmp_path: Path) -> None:
    engine = installed(f"sqlite:///{tmp_path / 'old.db'}", small)
    with writing(engine) as session:
        reference = ReferenceRepository(session).current("small")
        assert reference is not None
        reference.digest = load_bundle(small).files_digest
        reference.description = {k: v for k, v in reference.description.items() if k != "silent"}
    with writing(engine) as session:
        assert ReferenceRepository(session).install(load_bundle(small)).version == "1"
    assert load_bundle(exported(engine, tmp_path / "out.pacenote")).digest == load_bundle(small).digest
    path = small / "series" / "stage1.csv"
    path.write_text(path.read_text().replace("3.26", "3.27"))
    with pytest.raises(ConflictError, match="other content"), writing(engine) as session:
        ReferenceRepository(session).install(load_bundle(small))


def test_what_is_shipped_goes_out_as_it_is(tmp_path: Path) -> None:
    folder = next(path for path in shipped_bundles() if path.name == "lab")
    engine = installed(f"sqlite:///{tmp_path / 'own.db'}", folder)
    with reading(engine) as session:
        reference = ReferenceRepository(session).current("lab")
        assert reference is not None
        out = export_reference(session, reference, tmp_path / "lab.pacenote")
    assert load_bundle(out).files_digest == load_bundle(folder).files_digest
