"""Pulls whole histories from W&B into a folder of part files, one per page of steps; killed at any moment, it goes on.

`plan.json` says which runs are pulled, as W&B listed them at the first start, and
`parts/<stage>/<run>/<first step>.parquet` holds the rows of one page. A part has its name only once it is whole.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.importers.rows import LogError
from service.importers.side_by_side import side_by_side
from service.importers.wandb_api import PAGE_STEPS, HistoryPage, WandbApi, WandbError, WandbRun

Column = tuple[str, NDArray[np.int64], NDArray[np.float64]]

METRICS_AT_ONCE = 8  # held in memory while a run is read back: 1.4M steps of so many are 180 MB
STAMP = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[T_-](\d\d):?(\d\d):?(\d\d)(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True, slots=True)
class StageRequest:
    """What one stage is made of: a group of the project's runs, or runs by id in order of launch."""

    name: str
    group: str | None = None
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run to pull; `last_step` is None where it logged nothing."""

    id: str
    name: str
    created_at: float | None
    last_step: int | None
    lines: int

    @property
    def pages(self) -> list[int]:
        """The first step of each page."""
        return [] if self.last_step is None else list(range(0, self.last_step + 1, PAGE_STEPS))

    @property
    def launched(self) -> float | None:
        """The time in its name (such as OLMo25-20250721T060359+0000), in unix seconds; UTC where it names no zone."""
        stamp = STAMP.search(self.name)
        if stamp is None:
            return None
        *parts, zone = stamp.groups()
        try:
            return datetime.fromisoformat("{}-{}-{}T{}:{}:{}".format(*parts) + (zone or "+00:00")).timestamp()
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Plan:
    """Which runs are pulled, by stage, and the day on which W&B listed them."""

    retrieved: str
    stages: dict[str, list[PlannedRun]]

    @property
    def pages(self) -> int:
        """Pages of all runs."""
        return sum(len(run.pages) for runs in self.stages.values() for run in runs)


@dataclass(frozen=True, slots=True)
class PartCounts:
    """Rows of one page, rows without a whole step, and cells that are no numbers."""

    rows: int
    refused: int
    other: int


class Pull:
    """One pull and its folder. `advanced` is called for every page that is there, with its points."""

    def __init__(self, folder: Path, api: WandbApi, stages: Sequence[StageRequest]) -> None:
        self.folder = folder
        self._api = api
        self._stages = stages
        self._request: dict[str, Any] = {
            "url": api.url,
            "entity": api.entity,
            "project": api.project,
            "page_steps": PAGE_STEPS,
            "stages": [{**asdict(stage), "runs": list(stage.runs)} for stage in stages],
        }

    def plan(self) -> Plan:
        """The plan that the folder holds, else a new one.

        Raises:
            WandbError: the folder holds another pull, or W&B lists no run.
        """
        path = self.folder / "plan.json"
        content: dict[str, Any]
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["request"] != self._request:
                raise WandbError(f"{self.folder} holds another pull; name another folder with --work")
        else:
            listed = {stage.name: [_planned(run) for run in self._listed(stage)] for stage in self._stages}
            content = {
                "request": self._request,
                "retrieved": datetime.now(UTC).date().isoformat(),
                "stages": {stage: [asdict(run) for run in runs] for stage, runs in listed.items()},
            }
            self.folder.mkdir(parents=True, exist_ok=True)
            _put(path, json.dumps(content, indent=1).encode())
        stages: dict[str, list[dict[str, Any]]] = content["stages"]
        return Plan(content["retrieved"], {name: [PlannedRun(**run) for run in runs] for name, runs in stages.items()})

    def _listed(self, stage: StageRequest) -> list[WandbRun]:
        found = [self._api.run(run) for run in stage.runs] if stage.runs else self._api.runs(stage.group)
        if not any(run.last_step is not None for run in found):
            place = f" in group {stage.group}" if stage.group else ""
            raise WandbError(f"{self._api.entity}/{self._api.project} has no run with a history{place}")
        return found

    def fetch(self, plan: Plan, advanced: Callable[[PartCounts], None] = lambda counts: None) -> None:
        """Fetch every page that is not there, a few at once.

        Raises:
            WandbError: W&B does not give a page; what is there stays, and the next call goes on from it.
        """
        pages = ((stage, run, first) for stage, runs in plan.stages.items() for run in runs for first in run.pages)
        for _, counts in side_by_side(self._page, pages, self._api.stop):
            advanced(counts)

    def _page(self, page: tuple[str, PlannedRun, int]) -> PartCounts:
        """What a page holds, fetched if it is not there. Several threads may be here, each with a page of its own."""
        stage, run, first = page
        path = self._part(stage, run, first)
        counts = _counts(path)
        if counts is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            counts = _write_part(path, self._api.history(run.id, first, first + PAGE_STEPS))
        return counts

    def counts(self, stage: str, run: PlannedRun) -> PartCounts:
        """Totals of a run that is fetched."""
        parts = [_counts(self._part(stage, run, first)) for first in run.pages]
        whole = [part for part in parts if part is not None]
        return PartCounts(*(sum(getattr(p, name) for p in whole) for name in ("rows", "refused", "other")))

    def names(self, stage: str, run: PlannedRun) -> dict[str, None]:
        """Names of a run's metrics, in order of first appearance."""
        pq: Any = import_module("pyarrow.parquet")
        found: dict[str, None] = {}
        for first in run.pages:
            column: Any = pq.read_table(self._part(stage, run, first), columns=["metric"]).column("metric")
            found |= dict.fromkeys(column.combine_chunks().dictionary.to_pylist())
        return found

    def columns(self, stage: str, run: PlannedRun, names: Sequence[str]) -> Iterator[Column]:
        """The columns of a run, under W&B's names; a few are in memory at a time."""
        for start in range(0, len(names), METRICS_AT_ONCE):
            some = names[start : start + METRICS_AT_ONCE]
            parts: dict[str, list[tuple[NDArray[np.int64], NDArray[np.float64]]]] = {name: [] for name in some}
            for first in run.pages:
                for name, steps, values in _read_part(self._part(stage, run, first), some):
                    parts[name].append((steps, values))
            for name, pieces in parts.items():
                if pieces:
                    steps = np.concatenate([steps for steps, _ in pieces])
                    yield name, steps, np.concatenate([values for _, values in pieces])

    def _part(self, stage: str, run: PlannedRun, first: int) -> Path:
        return self.folder / "parts" / _safe(stage) / _safe(run.id) / f"{first:012d}.parquet"


def _planned(run: WandbRun) -> PlannedRun:
    return PlannedRun(run.id, run.name, run.created_at, run.last_step, run.lines)


def _safe(name: str) -> str:
    """A name that is no path."""
    if re.fullmatch(r"[\w.-]+", name) and not name.startswith("."):
        return name
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def _write_part(path: Path, page: HistoryPage) -> PartCounts:
    pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    names: dict[str, int] = {}
    steps: list[int] = []
    metrics: list[int] = []
    values: list[float] = []
    for row in page.rows:
        for name, value in row.values.items():
            steps.append(row.step)
            metrics.append(names.setdefault(name, len(names)))
            values.append(value)
    metric = pa.DictionaryArray.from_arrays(pa.array(metrics, pa.int32()), pa.array(list(names), pa.string()))
    table = pa.table({"step": pa.array(steps, pa.int64()), "metric": metric, "value": pa.array(values, pa.float64())})
    counts = PartCounts(len(page.rows), page.refused, page.other)
    table = table.replace_schema_metadata({"counts": json.dumps(asdict(counts))})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    _put(path, sink.getvalue().to_pybytes())
    return counts


def _counts(path: Path) -> PartCounts | None:
    """What a part says of itself; None if it is not there, or not whole (after a machine went down)."""
    pq: Any = import_module("pyarrow.parquet")
    try:
        return PartCounts(**json.loads(pq.read_schema(path).metadata[b"counts"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_part(path: Path, names: Sequence[str]) -> Iterator[Column]:
    pq: Any = import_module("pyarrow.parquet")
    table: Any = pq.read_table(path)
    encoded: Any = table.column("metric").combine_chunks()
    metrics = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
    known: list[str] = encoded.dictionary.to_pylist()
    steps, values = table.column("step").to_numpy(), table.column("value").to_numpy()
    for name in names:
        if name in known:
            mine = np.flatnonzero(metrics == known.index(name))
            if len(mine):
                yield name, steps[mine], values[mine]


def _put(path: Path, data: bytes) -> None:
    """Write a file that is either there and whole, or not there."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise LogError(f"{path}: cannot be written ({error.strerror})") from error
