"""Installing references in real databases: once, unchanged, with every point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine, func, select

from service.database.engine import reading, writing
from service.database.models import Project, Reference, Run, Segment
from service.errors import ConflictError
from service.references.bundle import load_bundle
from service.references.describe import primary_heldout, stage, tasks, tolerances
from service.references.repository import ReferenceRepository
from service.references.shipped import install_shipped
from service.series.repository import SeriesRepository


def install(engine: Engine, folder: Path) -> int:
    with writing(engine) as session:
        return ReferenceRepository(session).install(load_bundle(folder)).id


def counts(engine: Engine) -> tuple[int, ...]:
    with reading(engine) as session:
        return tuple(session.scalar(select(func.count()).select_from(kind)) or 0 for kind in (Reference, Run, Segment))


def test_twice_is_once(engine: Engine, small: Path) -> None:
    first = install(engine, small)
    before = counts(engine)
    assert install(engine, small) == first
    assert counts(engine) == before == (1, 2, 3)


def test_a_version_is_never_edited(engine: Engine, small: Path) -> None:
    install(engine, small)
    before = counts(engine)
    series = small / "series" / "stage1.csv"
    series.write_text(series.read_text().replace("2.5,b", "2.6,b"))
    with pytest.raises(ConflictError, match="installed with other content"):
        install(engine, small)
    assert counts(engine) == before
    toml = small / "reference.toml"
    toml.write_text(toml.read_text().replace('version = "1"', 'version = "2"'))
    second = install(engine, small)
    with reading(engine) as session:
        repository = ReferenceRepository(session)
        current = repository.current("small")
        assert current is not None
        assert (current.id, current.version) == (second, "2")
        assert repository.versions("small") == ["2", "1"]
        old = repository.version("small", "1")
        assert old is not None
        run = repository.run_of(old.id, "stage1")
        assert run is not None
        values = SeriesRepository(session).read(run.id, ["train/ce_loss"])["train/ce_loss"].values
        assert values[-1] == 2.5, "the old version keeps its numbers"


def test_points_overlaps_and_tokens(engine: Engine, small: Path) -> None:
    reference_id = install(engine, small)
    with reading(engine) as session:
        repository = ReferenceRepository(session)
        run = repository.run_of(reference_id, "stage1")
        assert run is not None
        assert (run.role, run.reference) == ("reference", None)
        assert session.scalar(select(Project.slug).where(Project.id == run.project_id)) == "small"
        series = SeriesRepository(session)
        live = series.read(run.id, ["train/ce_loss", "heldout/c4/ce_loss"])
        train = live["train/ce_loss"]
        assert train.steps.tolist() == [1, 2, 3, 4]
        np.testing.assert_array_equal(train.values, [3.5, 3.26, np.nan, 2.5])  # the later launch wins, step by step
        assert train.tokens.tolist() == [512, 1024, 1536, 2048]
        assert live["heldout/c4/ce_loss"].values.tolist() == [4.0]
        everything = series.read(run.id, ["train/ce_loss"], superseded=True)["train/ce_loss"]
        assert sorted(everything.steps.tolist()) == [1, 2, 2, 3, 3, 4]
        siblings = repository.siblings(reference_id, "stage1")
        assert [sibling.name for sibling in siblings] == ["small@1/seed-1"]
        assert series.read(siblings[0].id, ["train/ce_loss"])["train/ce_loss"].values.tolist() == [3.51, 3.24]


def test_what_is_said_about_it(engine: Engine, small: Path) -> None:
    install(engine, small)
    with reading(engine) as session:
        reference = ReferenceRepository(session).current("small")
        assert reference is not None
    tolerance = tolerances(reference)["train/ce_loss"]
    assert (tolerance.value, tolerance.runs, tolerance.noise_sd, tolerance.window_steps) == (0.015, 0, 0.02, 50)
    assert primary_heldout(reference) == "heldout/c4/ce_loss"
    assert [task.key for task in tasks(reference)] == ["arc"]
    found = stage(reference, "stage1")
    assert found is not None
    assert found.steps == 100
    assert stage(reference, "stage9") is None


def test_shipped_bundles(engine: Engine) -> None:
    installed = install_shipped(engine)
    assert "olmo3-7b 1" in installed
    before = counts(engine)
    assert install_shipped(engine) == installed
    assert counts(engine) == before
    with reading(engine) as session:
        repository = ReferenceRepository(session)
        reference = repository.current("olmo3-7b")
        assert reference is not None
        assert repository.run_of(reference.id, "stage3") is None
        second = repository.run_of(reference.id, "stage2")
        assert second is not None
        points = SeriesRepository(session).read(second.id, ["train/ce_loss"])["train/ce_loss"]
        assert len(points) == 1824
        assert points.tokens[0] == 5_929_965_715_456 + 2_097_152
