"""Runs at W&B, read whole by its API for an import. (A published project is pulled by `pacenote reference pull`.)"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from service.importers.long_table import LongTable
from service.importers.rows import NO_NUMBER, NO_STEP, LogError
from service.importers.run_names import distinct
from service.importers.side_by_side import side_by_side
from service.importers.wandb_api import DEFAULT_URL, PAGE_STEPS, HistoryPage, WandbApi, WandbRun

NAME = "wandb"
TITLE = "W&B's history, by its API"
PAGES_OF_PROJECT = ("workspace", "table", "sweeps", "overview", "runs", "groups")


@dataclass(frozen=True, slots=True)
class WandbAddress:
    """A project (`run` and `group` empty), one run of it, or one group of its runs; `url` is the API's."""

    url: str
    entity: str
    project: str
    run: str = ""
    group: str = ""


def parse(address: str, chosen: bool = False) -> WandbAddress | None:
    """What an address of W&B's pages, or `wandb:ENTITY/PROJECT[/RUN]`, means; None if it is none.

    `chosen`: the user says that it is one. Another host than wandb.ai is known by `WANDB_BASE_URL`.

    Raises:
        LogError: an address of W&B that names no project.
    """
    own = os.environ.get("WANDB_BASE_URL", DEFAULT_URL).rstrip("/")
    if address.startswith("wandb:"):
        parts = [part for part in address.removeprefix("wandb:").split("/") if part]
        if len(parts) not in (2, 3):
            raise LogError(f"{address}: write wandb:ENTITY/PROJECT or wandb:ENTITY/PROJECT/RUN, with the run's id")
        return WandbAddress(own, parts[0], parts[1], *parts[2:])
    split = urlsplit(address)
    ours = split.netloc == urlsplit(own).netloc
    if not (ours or chosen or split.hostname in ("wandb.ai", "www.wandb.ai", "api.wandb.ai")):
        return None
    url = own if ours else f"{split.scheme}://{split.netloc}" if chosen else DEFAULT_URL
    parts = [unquote(part) for part in split.path.split("/") if part]
    if len(parts) < 2 or (len(parts) > 2 and parts[2] not in PAGES_OF_PROJECT):
        raise LogError(
            f"{address}: an address of W&B that names no project or run; write {url}/ENTITY/PROJECT/runs/RUN, "
            "/ENTITY/PROJECT/groups/GROUP or /ENTITY/PROJECT"
        )
    page, name = (parts[2], parts[3]) if len(parts) > 3 else ("", "")
    run, group = name if page == "runs" else "", name if page == "groups" else ""
    return WandbAddress(url, parts[0], parts[1], run, group)


def pull(api: WandbApi, address: WandbAddress, table: LongTable, told: Callable[[int], None]) -> list[str]:
    """Write every value of the runs at an address into a table; the runs' names.

    The runs of a group are launches of one run; the runs of a project are runs of their own.

    Raises:
        LogError: there is no such run, group or project, or W&B does not answer.
    """
    runs = [api.run(address.run)] if address.run else api.runs(address.group or None)
    if not runs:
        what = f"no group {address.group}" if address.group else "no runs"
        raise LogError(f"{address.url}: {address.entity}/{address.project} has {what}")
    names = distinct([run.name for run in runs], [run.id for run in runs])
    if address.group:
        names = [address.group] * len(runs)
    pages = (
        (run, name, first)
        for run, name in zip(runs, names, strict=True)
        if run.last_step is not None
        for first in range(0, run.last_step + 1, PAGE_STEPS)
    )

    def fetched(page: tuple[WandbRun, str, int]) -> HistoryPage:
        return api.history(page[0].id, page[2], page[2] + PAGE_STEPS)

    for (run, name, _), page in side_by_side(fetched, pages, api.stop):
        _take(page, name, run.id if address.group else "", table)
        told(table.values)
    if len(runs) > 1 and address.group:
        table.notes.append(f"the {len(runs)} runs of the group are launches of one run: the later one counts")
    return list(dict.fromkeys(names))


def _take(page: HistoryPage, name: str, launch: str, table: LongTable) -> None:
    for row in page.rows:
        for metric, value in row.values.items():
            table.add(name, launch, row.step, metric, value, row.time)
    for reason, count in ((NO_STEP, page.refused), (NO_NUMBER, page.other)):
        if count:
            table.refused[reason] += count
