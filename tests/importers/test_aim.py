"""Aim's repositories: what is said where Aim is not installed, and what names mean. (tests/peers reads a real one.)"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from service.importers import aim
from service.importers.folders import find
from service.importers.job import Options, look
from service.importers.rows import LogError


@pytest.mark.skipif(find_spec("aim") is not None, reason="Aim is installed here")
@pytest.mark.parametrize("inner", ["", ".aim"])
def test_without_aim_it_says_what_to_do(tmp_path: Path, inner: str) -> None:
    for part in ("meta/chunks", "seqs/chunks"):
        (tmp_path / ".aim" / part).mkdir(parents=True)
    (group,) = find(tmp_path / inner).groups
    assert group.format.name == "aim"
    with pytest.raises(LogError, match=r"`pip install aim` beside Pacenote, or write each run out"):
        look(group, Options("test"))


def test_what_tells_a_repository_from_another_is_its_series(tmp_path: Path) -> None:
    for file in ("meta/chunks/a/000009.sst", "seqs/chunks/a/000008.log", "seqs/chunks/a/LOG", "locks/a"):
        (tmp_path / ".aim" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".aim" / file).write_text(file)
    (group,) = find(tmp_path).groups
    before = group.digest([])
    (tmp_path / ".aim" / "seqs/chunks/a/LOG").write_text("opened again")
    assert group.digest([]) == before
    (tmp_path / ".aim" / "seqs/chunks/a/000008.log").write_text("a value more")
    assert group.digest([]) != before


def test_names_with_contexts() -> None:
    assert aim.metric_name("loss", {"subset": "train"}) == "train/loss"
    assert aim.metric_name("loss", {}) == "loss"
    assert aim.metric_name("acc", {"task": "piqa", "subset": "val", "shot": 5}) == "val/acc [shot=5, task=piqa]"
