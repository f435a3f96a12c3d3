"""Aim's repository (a folder `.aim`): read through the package `aim` where it is installed, since Aim keeps its series
in RocksDB, in an encoding that it describes nowhere but in its own code.

Aim reads through an index that it brings up to date only now and then, and writes to a repository that it opens. So it
is given a stand-in: links to the folders of series, a copy of its small SQLite file, and no index. Then it reads every
run, and changes nothing.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from service.importers.blocks import Block, Column
from service.importers.formats import Format, Head, Source
from service.importers.rows import Account, LogError
from service.importers.run_names import distinct

NAME = "aim"
COPIED = ("VERSION", "run_metadata.sqlite")
NO_METRIC = "the run holds no metric"
BELOW_ZERO = "a step below 0"


def recognise(head: Head) -> str | None:
    """Why a folder is a repository of Aim's, None if it is not."""
    return "a folder .aim with meta/ and seqs/" if _home(head.path) is not None else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """Every metric of every run, each in the order of its steps.

    Raises:
        LogError: the package `aim` is not installed, or cannot read the repository.
    """
    home = _home(source.path)
    if home is None:
        raise LogError(f"{source.path}: no repository of Aim's (a folder .aim with meta/ and seqs/)")
    if find_spec("aim") is None:
        raise LogError(
            f"{source.path}: Aim's repository is read by Aim's own package alone: `pip install aim` beside Pacenote, "
            "or write each run out with run.dataframe() as CSV or Parquet"
        )
    with _standing_in(home) as stand_in:
        try:
            yield from _runs(stand_in, source, account)
        except LogError:
            raise
        except Exception as error:  # Aim's own errors have no common kind
            raise LogError(f"{source.path}: Aim cannot read it ({type(error).__name__}: {error})") from error


def metric_name(name: str, context: Mapping[str, Any]) -> str:
    """A name with its context: `loss` in {"subset": "train"} is train/loss, what else there is follows in brackets."""
    rest = {key: value for key, value in sorted(context.items()) if key != "subset"}
    full = f"{context['subset']}/{name}" if context.get("subset") else name
    return f"{full} [{', '.join(f'{key}={value}' for key, value in rest.items())}]" if rest else full


def _home(path: Path) -> Path | None:
    home = path if path.name == ".aim" else path / ".aim"
    return home if (home / "meta" / "chunks").is_dir() and (home / "seqs").is_dir() else None


@contextmanager
def _standing_in(home: Path) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="pacenote-aim-") as folder:
        made = Path(folder) / ".aim"
        (made / "meta").mkdir(parents=True)
        (made / "locks").mkdir()
        for name in COPIED:
            if (home / name).is_file():
                shutil.copyfile(home / name, made / name)
        (made / "meta" / "chunks").symlink_to((home / "meta" / "chunks").absolute())
        (made / "seqs").symlink_to((home / "seqs").absolute())
        yield Path(folder)


def _runs(folder: Path, source: Source, account: Account) -> Iterator[Block]:
    sdk: Any = import_module("aim")
    logging.getLogger("aim").setLevel(logging.ERROR)
    status = str(sdk.Repo.check_repo_status(str(folder)))
    if status.endswith("UPDATE_REQUIRED"):
        raise LogError(f"{source.path}: written by an Aim before 3.0; `aim upgrade` of that package makes it readable")
    repository = sdk.Repo(str(folder))
    try:
        runs = [sdk.Run(run, repo=repository, read_only=True) for run in sorted(repository.list_all_runs())]
        runs.sort(key=lambda run: run.creation_time)
        ids = [str(run.hash) for run in runs]
        names = [str(run.name or "").removeprefix("Run: ") for run in runs]  # its id where it has no name
        for run, own in zip(runs, distinct(names, ids), strict=True):
            found = 0
            for metric, context, _ in run.iter_metrics_info():
                block = _block(run.get_metric(metric, context), metric_name(metric, context.to_dict()), own, account)
                if block is not None:
                    found += block.points
                    yield block
            if not found:
                account.refuse(NO_METRIC, f"run {own}")
    finally:
        repository.close()


def _block(metric: Any, name: str, run: str, account: Account) -> Block | None:
    if metric is None:
        return None
    steps, (values, _, times) = metric.data.numpy()
    steps, good = np.asarray(steps, np.int64), np.asarray(steps) >= 0
    account.lines += len(steps)
    if not good.all():
        account.refuse(BELOW_ZERO, f"run {run}, {name}", int((~good).sum()))
    if not good.any():
        return None
    column = Column(np.asarray(values, np.float64)[good])
    return Block(steps[good], {name: column}, np.asarray(times, np.float64)[good], run, in_time_order=False)


def _files(path: Path) -> list[Path]:
    """What holds runs; logs and locks of RocksDB change when they are opened."""
    home = _home(path) or path
    kept = (file for part in ("meta/chunks", "seqs") for file in (home / part).rglob("*") if file.is_file())
    return sorted(file for file in kept if file.suffix in (".sst", ".log") or file.name.startswith("MANIFEST"))


FORMAT = Format(NAME, "Aim's repository", recognise, read, files=_files)
