"""Building a reference from logs and runs, carrying it as one file, installing it elsewhere."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from service.cli.main import app
from service.database.engine import open_engine, reading
from service.references.bundle import load_bundle
from service.references.repository import ReferenceRepository
from service.references.shipped import BUNDLES
from service.runs.repository import RunRepository
from service.series.repository import SeriesRepository

TOKENS = 1000
NOISE = 0.01


def log(path: Path, first: int, last: int, seed: int = 0, shift: float = 0.0, **more: float) -> Path:
    """A log with a loss that falls, noise from `seed`, and an evaluation every 50 steps."""
    noise = np.random.default_rng(seed).normal(0, NOISE, last + 1)
    lines: list[str] = []
    for step in range(first, last + 1):
        row = {"step": step, "loss": 2.0 + 2.0 / (1 + step / 100) + noise[step] + shift, **more}
        if step % 50 == 0:
            row["val_loss"] = 2.5 + 2.0 / (1 + step / 100) + shift + noise[step] / 5
        if "total" in more:
            row["throughput/total tokens"] = step * TOKENS
            row.pop("total")
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["reference", *map(str, arguments)])


GIVEN = ("--licence", "CC0-1.0", "--citation", "Nobody, 2026")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    log(tmp_path / "first.jsonl", 1, 1500)
    log(tmp_path / "second.jsonl", 1201, 3000, 0, 1e-3)
    log(tmp_path / "mid.jsonl", 1, 400, 3)
    for seed in (1, 2):
        log(tmp_path / f"seed{seed}.jsonl", 1, 3000, seed, 2e-3 * seed)
    return tmp_path


def build(folder: Path, database_url: str, *more: object) -> Result:
    return invoke(
        "build",
        "mine",
        f"pre={folder / 'first.jsonl'}",
        f"pre={folder / 'second.jsonl'}",
        f"mid={folder / 'mid.jsonl'}",
        "--sibling",
        f"pre:seed-1={folder / 'seed1.jsonl'}",
        "--sibling",
        f"pre:seed-2={folder / 'seed2.jsonl'}",
        "--tokens-per-step",
        TOKENS,
        "--tokens-per-step",
        "mid=500",
        "--steps",
        "pre=4000",
        "--database-url",
        database_url,
        *GIVEN,
        *more,
    )


def test_built_from_logs_and_carried_elsewhere(logs: Path, engine: Engine, database_url: str, tmp_path: Path) -> None:
    archive = tmp_path / "mine.pacenote"
    result = build(logs, database_url, "--out", archive, "--source", "https://example.org", "--task", "arc=100")
    assert result.exit_code == 0, result.output
    said = load_bundle(archive).description
    assert [(s.name, s.steps, s.tokens_per_step, s.token_offset) for s in said.stages] == [
        ("pre", 4000, 1000, 0.0),
        ("mid", 400, 500, 4_000_000.0),
    ]
    assert (said.source.licence, said.source.url, said.tasks[0].published) == ("CC0-1.0", "https://example.org", False)
    train, heldout = said.tolerance["train/ce_loss"], said.tolerance["heldout/val/ce_loss"]
    assert (train.runs, heldout.runs) == (2, 2)
    assert train.noise_sd == pytest.approx(NOISE, rel=0.2)
    assert 0.003 < train.value < 0.03
    with reading(engine) as session:
        references = ReferenceRepository(session)
        reference = references.current("mine")
        assert reference is not None
        run = references.run_of(reference.id, "pre")
        assert run is not None
        read = SeriesRepository(session).read(run.id, ["train/ce_loss"])["train/ce_loss"]
        assert read.steps.tolist() == list(range(1, 3001))
        assert len(references.siblings(reference.id, "pre")) == 2
        mid = references.run_of(reference.id, "mid")
        assert mid is not None
        assert SeriesRepository(session).read(mid.id, ["train/ce_loss"])["train/ce_loss"].tokens[0] == 4_000_500
    # Out of the database, into another one, and out again: the same file each time.
    out = [tmp_path / "one.pacenote", tmp_path / "two.pacenote"]
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert invoke("export", "mine", out[0], "--database-url", database_url).exit_code == 0
    installed = invoke("install", out[0], "--database-url", other)
    assert installed.exit_code == 0, installed.output
    assert "Installed mine version 1" in installed.stdout
    assert invoke("install", out[0], "--database-url", other).exit_code == 0, "again changes nothing"
    assert invoke("export", "mine", out[1], "--database-url", other).exit_code == 0
    assert out[0].read_bytes() == out[1].read_bytes()
    ours, theirs = load_bundle(archive), load_bundle(out[0])
    assert theirs.description == ours.description
    for mine, their in zip(ours.series, theirs.series, strict=True):
        assert [launch.segment for launch in mine.launches] == [launch.segment for launch in their.launches]
        for segment, metrics in mine.curves.items():
            for metric, curve in metrics.items():
                np.testing.assert_array_equal(their.curves[segment][metric].steps, curve.steps)
                np.testing.assert_array_equal(their.curves[segment][metric].values, curve.values)


def test_a_version_is_never_edited(logs: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    assert build(logs, url).exit_code == 0
    log(logs / "mid.jsonl", 1, 400, 4)
    result = build(logs, url)
    assert result.exit_code == 2
    assert "A version is never edited" in result.stderr
    assert build(logs, url, "--version", "2").exit_code == 0


def test_built_from_a_run_of_the_database(logs: Path, tmp_path: Path) -> None:
    """A run with a restart becomes a reference with both starts in it."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    source = logs / "restarted.jsonl"
    source.write_text((logs / "first.jsonl").read_text() + (logs / "second.jsonl").read_text())
    assert invoke("build", "a", source, "--tokens-per-step", TOKENS, "--database-url", url, *GIVEN).exit_code == 0
    engine = open_engine(url)
    with reading(engine) as session:
        references = ReferenceRepository(session)
        reference = references.current("a")
        assert reference is not None
        run = references.run_of(reference.id, "stage1")
        assert run is not None
        assert [s.segment.config["segment"] for s in RunRepository(session).segments(run.id)] == [
            "restarted-1",
            "restarted-2",
        ]
        uuid = run.uuid
    result = invoke("build", "b", f"run:{uuid}", "--tokens-per-step", TOKENS, "--database-url", url, *GIVEN)
    assert result.exit_code == 0, result.output
    with reading(engine) as session:
        references = ReferenceRepository(session)
        reference = references.current("b")
        assert reference is not None
        again = references.run_of(reference.id, "stage1")
        assert again is not None
        series = SeriesRepository(session)
        for superseded in (False, True):
            one, other = (
                series.read(r.id, ["train/ce_loss"], superseded=superseded)["train/ce_loss"] for r in (run, again)
            )
            np.testing.assert_array_equal(one.values, other.values)
            np.testing.assert_array_equal(one.steps, other.steps)
    engine.dispose()


def test_tokens_come_from_the_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    path = log(tmp_path / "counts.jsonl", 1, 300, total=1.0)
    archive = tmp_path / "a.pacenote"
    result = invoke("build", "a", path, "--database-url", url, "--out", archive, *GIVEN)
    assert result.exit_code == 0, result.output
    assert load_bundle(archive).description.stages[0].tokens_per_step == TOKENS
    result = invoke("build", "b", path, "--tokens-per-step", "999", "--database-url", url, *GIVEN)
    assert "total tokens are not step x tokens per step at 300 points" in " ".join(result.stderr.split())


def test_a_shipped_reference_is_written_as_shipped(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path / 'x.db'}", tmp_path / "olmo.pacenote"
    result = invoke("export", "olmo3-7b", file, "--database-url", url)
    assert result.exit_code == 0, result.output
    assert load_bundle(file).digest == load_bundle(BUNDLES / "olmo3-7b").digest
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["none.jsonl"], "none.jsonl"),
        (["{log}"], "give --tokens-per-step"),
        (["{log}", "--tokens-per-step", "x"], "write a whole number"),
        (["{log}", "--tokens-per-step", "1", "--steps", "10"], "is less than the log's last step"),
        (["{log}", "--tokens-per-step", "1", "--primary", "c4"], "there is no such held-out set; there are val"),
        (["{log}", "--tokens-per-step", "1", "--sibling", "x"], "write NAME=LOG"),
        (["{log}", "--tokens-per-step", "1", "--sibling", "y:x=z"], "there is no stage y"),
        (["{log}", "--tokens-per-step", "1", "--task", "x"], "write KEY=ITEMS"),
        (["run:x"], "write run: and the id of a run"),
        (["run:00000000-0000-0000-0000-000000000000"], "there is no such run"),
    ],
)
def test_what_is_refused(tmp_path: Path, more: list[str], message: str) -> None:
    path = log(tmp_path / "a.jsonl", 1, 60)
    given = [argument.format(log=path) for argument in more]
    result = invoke("build", "a", *given, "--database-url", f"sqlite:///{tmp_path / 'x.db'}", *GIVEN)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "x.pacenote").write_text("x")
    result = invoke("install", tmp_path / "x.pacenote", "--database-url", f"sqlite:///{tmp_path / 'x.db'}")
    assert result.exit_code == 2
    assert "neither a folder nor a .pacenote archive" in result.stderr
