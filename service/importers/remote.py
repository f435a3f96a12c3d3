"""Logs at an address: a run or project at W&B, an MLflow tracking server, or one file over http or https."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from service.importers import mlflow_rest, wandb_runs
from service.importers.download import Told, download, shown
from service.importers.folders import Found, find
from service.importers.long_table import LongTable
from service.importers.rows import LogError
from service.importers.wandb_api import WandbApi

FORMATS = (wandb_runs.NAME, mlflow_rest.NAME)
TABLE = "values.csv"


def is_address(text: str) -> bool:
    """Whether this names something to be read over the network."""
    return text.lower().startswith(("http://", "https://", "wandb:"))


def local_path(text: str) -> Path:
    """The path that a user named.

    Raises:
        LogError: nothing was named (a variable of a script was empty), or an address that is not read.
    """
    if not text.strip():
        raise LogError("no file is named: the argument is empty")
    path = Path(text)
    if "://" in text and not path.exists():
        raise LogError(f"{shown(text)}: not read over {text.partition('://')[0]}://; copy it to this machine first")
    return path


def find_remote(
    address: str, folder: Path, chosen: str | None, told: Told, say: Callable[[str], None] = lambda _: None
) -> Found:
    """Bring what is at an address into `folder`, and find the logs in it; `chosen` is the format, if the user says it.

    `told` hears how much has come (values of a tracker; bytes of a file, and in all), `say` of long waits.

    Raises:
        LogError: it cannot be read, or is no log.
    """

    def read(count: int) -> None:
        told(count, None)

    try:
        urlsplit(address).port  # noqa: B018 - is looked at for what it raises
    except ValueError as error:
        raise LogError(f"{address}: no address of http or https ({error})") from error
    wandb = wandb_runs.parse(address, chosen == wandb_runs.NAME) if chosen in (None, wandb_runs.NAME) else None
    mlflow = mlflow_rest.parse(address, chosen == mlflow_rest.NAME) if chosen in (None, mlflow_rest.NAME) else None
    if wandb is None and mlflow is None:
        path = download(address, folder, told)
        try:
            found = find(path, chosen)
        except LogError as error:
            raise LogError(str(error).replace(str(path), shown(address), 1)) from error
        return Found([replace(group, origin=shown(address)) for group in found.groups], found.refused)
    with LongTable(folder / TABLE) as table:
        if wandb is not None:
            with WandbApi(wandb.entity, wandb.project, url=wandb.url, say=say) as api:
                names = wandb_runs.pull(api, wandb, table, read)
            because = f"its address: {wandb.entity}/{wandb.project}"
            return _found(table, wandb_runs.NAME, wandb_runs.TITLE, because, names, address)
        assert mlflow is not None
        with mlflow_rest.MlflowServer(mlflow.base) as server:
            names = mlflow_rest.pull(server, mlflow, table, read)
        return _found(table, mlflow_rest.NAME, mlflow_rest.TITLE, "its address", names, address)


def _found(table: LongTable, name: str, title: str, because: str, runs: Sequence[str], address: str) -> Found:
    if not table.values:
        raise LogError(f"{shown(address)}: {', '.join(runs[:3])}: no values have been logged")
    return Found([replace(table.group(name, title, because, runs[0]), origin=shown(address))])
