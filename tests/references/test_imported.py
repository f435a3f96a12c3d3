"""A reference out of `pacenote import`: estimated as `reference build` does, carried elsewhere, judged alike."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from typer.testing import CliRunner, Result

from service.broker import Broker
from service.cli.main import app
from service.database.engine import open_engine, reading
from service.database.models import Reference, Run
from service.judgements.repository import JudgementRepository
from service.references.archive import bundle_files
from service.references.bundle import load_bundle
from service.worker.judge import Judge

RATE = 1000
NOISE = 0.01


def call(url: str, *arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"PACENOTE_DATABASE_URL": url})


def write(path: Path, seed: int, shift: float = 0.0, steps: int = 1500, tokens_off: int = 0) -> Path:
    noise = np.random.default_rng(seed).normal(0, NOISE, steps + 1)
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        row: dict[str, Any] = {"step": step, "loss": 2.0 + 2.0 / (1 + step / 100) + noise[step] + shift}
        row["throughput/total tokens"] = step * RATE + (tokens_off if step > 500 else 0)
        if step % 50 == 0:
            row["val_loss"] = 2.5 + 2.0 / (1 + step / 100) + shift + noise[step] / 5
        rows.append(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    folder = tmp_path / "seeds"
    folder.mkdir()
    for seed in range(3):
        write(folder / f"seed{seed}.jsonl", seed, 2e-3 * seed)
    return folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'own.db'}"


REFERENCE = ("--as", "reference", "--name", "small", "--tokens-per-step", RATE, "--licence", "CC0-1.0")


def test_seeds_are_siblings_and_it_is_estimated_as_build_does(seeds: Path, url: str, tmp_path: Path) -> None:
    several = call(url, "import", seeds, *REFERENCE)
    assert several.exit_code == 2
    assert "Take one with --run" in several.stderr
    assert "--sibling all" in several.stderr
    made = call(url, "import", seeds, *REFERENCE, "--run", "seed0", "--sibling", "all", "--source", "https://e.org")
    assert made.exit_code == 0, made.output
    assert "of 2 healthy runs" in made.stdout
    files = [tmp_path / "imported.pacenote", tmp_path / "built.pacenote"]
    assert call(url, "reference", "export", "small", files[0]).exit_code == 0
    siblings = [f"--sibling=seed{n}={seeds / f'seed{n}.jsonl'}" for n in (1, 2)]
    arguments = ["--licence", "CC0-1.0", "--citation", "x", f"--tokens-per-step={RATE}", "--out", files[1]]
    built = call(url, "reference", "build", "built", seeds / "seed0.jsonl", *siblings, *arguments)
    assert built.exit_code == 0, built.output
    ours, theirs = (load_bundle(file).description for file in files)
    assert ours.tolerance == theirs.tolerance
    assert ours.tolerance["train/ce_loss"].runs == 2
    assert ours.tolerance["train/ce_loss"].noise_sd == pytest.approx(NOISE, rel=0.2)
    assert ours.stages == theirs.stages
    assert (ours.source.licence, ours.source.url, ours.conflicts) == ("CC0-1.0", "https://e.org", [])


def test_a_count_of_tokens_that_is_another_is_said_and_kept(url: str, tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", 1, tokens_off=5)
    made = call(url, "import", log, *REFERENCE)
    assert made.exit_code == 0, made.output
    said = "the source's total tokens are not step x tokens per step at 1,000 points"
    assert said in made.stderr
    shown = call(url, "reference", "show", "small")
    assert said in shown.stdout.replace("\n", " ")


def test_a_version_is_never_edited(seeds: Path, url: str) -> None:
    log = seeds / "seed0.jsonl"
    named = ("--version", "1")
    assert call(url, "import", log, *REFERENCE, *named).exit_code == 0
    assert call(url, "import", log, *REFERENCE, *named).exit_code == 0, "the same again changes nothing"
    other = call(url, "import", seeds / "seed1.jsonl", *REFERENCE, *named)
    assert other.exit_code == 2
    assert "A version is never edited" in other.stderr
    words = call(url, "import", log, *REFERENCE[:-1], "MIT", *named)
    assert words.exit_code == 2
    assert call(url, "import", log, *REFERENCE[:-1], "MIT").exit_code == 0, "other words, another version"
    assert call(url, "reference", "list").stdout.count("small") >= 1
    engine = open_engine(url)
    with reading(engine) as session:
        assert len(session.scalars(select(Reference).where(Reference.slug == "small")).all()) == 2
    engine.dispose()


def test_carried_to_another_database_it_judges_alike(seeds: Path, database_url: str, tmp_path: Path) -> None:
    urls = [database_url, f"sqlite:///{tmp_path / 'other.db'}"]
    made = call(urls[0], "import", seeds, *REFERENCE, "--run", "seed0", "--sibling", "all")
    assert made.exit_code == 0, made.output
    archive = tmp_path / "small.pacenote"
    assert call(urls[0], "reference", "export", "small", archive).exit_code == 0
    assert call(urls[0], "reference", "install", archive).exit_code == 0, "to where it came from"
    assert call(urls[1], "reference", "install", archive).exit_code == 0
    drifting = write(tmp_path / "mine.jsonl", 9, -0.15)
    found: list[tuple[str, Any]] = []
    for url in urls:
        imported = call(url, "import", drifting, "--reference", "small", "--name", "mine")
        assert imported.exit_code == 0, imported.output
        found.append(judged(url))
    assert found[0] == found[1]
    assert found[0][1]["train_drift"]["state"] == "yes"


def judged(url: str) -> tuple[str, dict[str, Any]]:
    """The digest of the reference, and every judgement of the run `mine`, without ids."""
    engine = open_engine(url)
    try:
        with reading(engine) as session:
            run = session.scalars(select(Run.id).where(Run.name == "mine")).one()
            digest = session.scalars(select(Reference.digest).where(Reference.slug == "small")).one()
        Judge(engine, Broker(), "http://localhost", clear_seconds=0.0).judge_run(run)
        with reading(engine) as session:
            return digest, {row.rule: row.body for row in JudgementRepository(session).of_run(run)}
    finally:
        engine.dispose()


def test_the_files_say_where_they_come_from(seeds: Path, url: str, tmp_path: Path) -> None:
    assert call(url, "import", seeds / "seed0.jsonl", *REFERENCE).exit_code == 0
    archive = tmp_path / "small.pacenote"
    assert call(url, "reference", "export", "small", archive).exit_code == 0
    files = bundle_files(archive)
    assert files["segments.csv"].decode().splitlines()[1] == "stage1,seed0.jsonl-0,,1500,"
    assert "licence" in tomllib.loads(files["reference.toml"].decode())["source"]
