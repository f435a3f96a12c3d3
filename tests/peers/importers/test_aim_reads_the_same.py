"""Repositories that Aim made, beside what Aim itself reads from them."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
from peer_reading import read_back, spelled

from service.importers.aim import metric_name
from service.importers.folders import find
from service.importers.job import Options, look

aim: Any = pytest.importorskip("aim")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two named runs, one that is archived and has no name, one without a metric."""
    folder = tmp_path / "experiments"
    aim.Repo.from_path(str(folder), init=True)
    for seed in (0, 1):
        run = make(folder)
        run.name = f"seed{seed}"
        for step in range(1, 41):
            run.track(3 - step / 40 + seed, name="loss", step=step, context={"subset": "train"})
            if step % 10 == 0:
                run.track(3.1 - step / 40, name="loss", step=step, context={"subset": "val"}, epoch=1)
        for step, value in enumerate([math.nan, math.inf, -0.0, 7], 1):
            run.track(value, name="grad_norm", step=step)
        run.track(aim.Text("hello"), name="note", step=1)
        run.close()
    run = make(folder)
    run.track(1.5, name="loss", step=1)
    run.archived = True
    run.close()
    run = make(folder)
    run["learning_rate"] = 1e-3
    run.close()
    return folder


def make(folder: Path) -> Any:
    return aim.Run(repo=str(folder), system_tracking_interval=None, capture_terminal_logs=False)


def content(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.md5(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def test_a_repository(repository: Path, tmp_path: Path) -> None:
    before = content(repository)
    found = read_back(repository, tmp_path)
    assert content(repository) == before, "reading changes nothing"
    # Aim reads runs through its index, which is behind; a run that is opened to be written is read itself.
    expected: dict[str, dict[str, list[tuple[int, float]]]] = {}
    repo = aim.Repo(str(repository))
    for key in repo.list_all_runs():
        run = aim.Run(key, repo=repo, system_tracking_interval=None, capture_terminal_logs=False)
        name = key if run.name == f"Run: {key}" else run.name
        for metric, context, _ in run.iter_metrics_info():
            steps, (values, _, _) = run.get_metric(metric, context).data.numpy()
            pairs = list(zip(steps.tolist(), values.tolist(), strict=True))
            expected.setdefault(name, {})[metric_name(metric, context.to_dict())] = pairs
        run.close()
    repo.close()
    assert found == spelled(expected)
    assert len(found) == 3
    assert [pair[0] for pair in found["seed1"]["val/loss"]] == [10, 20, 30, 40]


def test_a_run_without_a_metric_is_told_of(repository: Path) -> None:
    (group,) = find(repository).groups
    preview = look(group, Options("peer"))
    assert preview.account.refused == {"the run holds no metric": 1}
    assert [run.known["val/loss"].metric for run in preview.plan.runs.values() if "val/loss" in run.known] == [
        "heldout/val/ce_loss"
    ] * 2


def test_a_repository_that_is_still_written(repository: Path, tmp_path: Path) -> None:
    run = make(repository)
    run.name = "live"
    for step in range(100):
        run.track(step / 7, name="loss", step=step)
    found = read_back(repository, tmp_path)
    run.close()
    after = read_back(repository, tmp_path)
    assert (
        found.get("live", {"loss": []})["loss"] == after["live"]["loss"][: len(found.get("live", {}).get("loss", []))]
    )
    assert len(after["live"]["loss"]) == 100


def test_a_damaged_repository_says_so(repository: Path, tmp_path: Path) -> None:
    for path in (repository / ".aim" / "meta" / "chunks").rglob("MANIFEST*"):
        path.write_bytes(b"not a manifest")
    (group,) = find(repository).groups
    with pytest.raises(ValueError, match=r"Aim cannot read it|no value could be read") as raised:
        look(group, Options("peer"))
    assert "\n" not in str(raised.value)
