"""A recording makes a whole bundle, the same each time; the shipped one is what this code makes."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from reproduction import lab
from reproduction.lab import bundle, corpus, evals
from reproduction.lab import record as recording
from reproduction.lab.record import REFERENCE_SEED, SIBLING_SEEDS, Recorder, record
from reproduction.loop import Plan, train
from reproduction.olmo3 import checkpoint
from reproduction.olmo3.model import Config
from reproduction.optimizer import Schedule

SHIPPED = Path(__file__).parents[2] / "service" / "references" / "bundles" / "lab"
STEPS, WINDOW = 10, 5


@dataclass(frozen=True)
class Wander:
    value: float
    source: str
    runs: int
    noise_sd: float | None
    window_steps: int


def largest_gap(gaps: Sequence[np.ndarray], window_steps: int, noise_sd: float | None, *, unit: str = "nats") -> Wander:
    return Wander(float(np.abs(gaps).max()), f"largest, {unit}", len(gaps), noise_sd, window_steps)


def series(path: Path) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            points = found.setdefault(row["metric"], {})
            assert int(row["step"]) not in points
            points[int(row["step"])] = float(row["value"])
    return found


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """A small model and few items, for the recordings made here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "Config", partial(Config, d_model=32, n_layers=1, n_heads=2, d_hidden=32))
        patch.setattr(bundle, "WINDOW_STEPS", WINDOW)
        patch.setattr(evals, "ITEMS", 4)
        patch.setattr(evals, "WINDOWS_PER_DOMAIN", 1)
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recorded")
    record(out / "lab", largest_gap, base=out / "base.safetensors", base_steps=3, steps=STEPS)
    return out / "lab"


def test_a_recording_holds_a_reference_and_three_siblings(recorded: Path) -> None:
    reference = series(recorded / "series" / "stage1.csv")
    siblings = {path.stem: series(path) for path in (recorded / "siblings").glob("*.csv")}
    assert sorted(siblings) == [f"order-seed-{seed}" for seed in SIBLING_SEEDS]
    for name, points in reference.items():
        at = [0, STEPS] if name.startswith(("heldout/", "downstream/")) else list(range(1, STEPS + 1))
        assert list(points) == at, name
        for sibling in siblings.values():
            assert list(sibling[name]) == at
            assert name == "optim/learning_rate" or at[0] != 0 or sibling[name][0] == points[0]  # the same base
    assert not any(name.startswith("throughput/") for name in reference)
    assert all(s["train/ce_loss"] != reference["train/ce_loss"] for s in siblings.values())


def test_its_tolerances_come_from_the_siblings_gaps(recorded: Path) -> None:
    described = tomllib.loads((recorded / "reference.toml").read_text())
    reference = series(recorded / "series" / "stage1.csv")["train/ce_loss"]
    gaps = [
        np.array(list(series(path)["train/ce_loss"].values())) - list(reference.values())
        for path in sorted((recorded / "siblings").glob("*.csv"))
    ]
    tolerance = described["tolerance"]["train/ce_loss"]
    assert tolerance["value"] == pytest.approx(np.abs(np.reshape(gaps, (3, -1, WINDOW)).mean(axis=2)).max(), abs=1e-5)
    assert tolerance["noise_sd"] == pytest.approx(np.std(gaps) / np.sqrt(2), abs=1e-5)
    assert (tolerance["runs"], tolerance["window_steps"], tolerance["unit"]) == (3, WINDOW, "nats")
    assert described["tolerance"].keys() == {"train/ce_loss", "heldout/lab/ce_loss", "downstream/mean/accuracy"}


def test_recording_again_gives_the_same_files(recorded: Path, tmp_path: Path) -> None:
    record(tmp_path / "again", largest_gap, base=tmp_path / "base.safetensors", base_steps=3, steps=STEPS)
    assert (tmp_path / "base.safetensors").read_bytes() == (recorded.parent / "base.safetensors").read_bytes()
    files = sorted(path.relative_to(recorded) for path in recorded.rglob("*") if path.is_file())
    assert len(files) == 5
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (recorded / file).read_bytes(), file


def test_a_recording_that_is_stopped_leaves_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(InterruptedError, match="base checkpoint at step 0 of 3"):
        record(tmp_path / "lab", largest_gap, base=tmp_path / "b", base_steps=3, steps=STEPS, should_stop=lambda: True)
    assert not list(tmp_path.iterdir())


def test_the_shipped_bundle_is_complete() -> None:
    described = tomllib.loads((SHIPPED / "reference.toml").read_text())
    reference = series(SHIPPED / "series" / "stage1.csv")
    (stage,) = described["stages"]
    assert (stage["steps"], stage["tokens_per_step"], stage["token_offset"]) == (400, 1024, 0)
    assert list(reference["train/ce_loss"]) == list(range(1, 401))
    evaluated = list(range(0, 401, 25))
    assert list(reference["heldout/lab/ce_loss"]) == evaluated
    assert [task["items"] for task in described["tasks"]] == [48] * 8
    for task in described["tasks"]:
        assert list(reference[task["metric"]]) == evaluated
    assert len(list((SHIPPED / "siblings").glob("*.csv"))) == 3
    assert 0.05 < described["tolerance"]["train/ce_loss"]["value"] < 0.15  # a double shard ends near 0.4
    assert described["tolerance"]["train/ce_loss"]["window_steps"] == 50
    assert described["recipe"]["init"]["sha256"] == sha256(lab.BASE.read_bytes()).hexdigest()


def test_the_shipped_bundle_is_what_this_code_makes() -> None:
    """The first steps of the reference again. Other processors round otherwise, so equal bits are not asked for."""
    described = tomllib.loads((SHIPPED / "reference.toml").read_text())["recipe"]
    reference = series(SHIPPED / "series" / "stage1.csv")
    graph, params, config = checkpoint.load(lab.BASE)
    run = Recorder()
    steps = 6
    plan = Plan(steps=steps, seed=REFERENCE_SEED, eval_every=0, schedule=Schedule(final=Schedule().peak))
    train(run, plan, lab.run_rows(corpus.load(), described["data"]["rows"]), graph, params)
    assert config.parameters == described["model"]["parameters"] == 1_067_136
    for metric in ("train/ce_loss", "optim/grad_norm", "optim/learning_rate"):
        again = [value for _, value in run.series[metric]]
        assert again == pytest.approx([reference[metric][s] for s in range(1, steps + 1)], rel=2e-3), metric
