"""Several runs and references beside each other: what they are, where they stand at the same tokens, what differs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy.orm import Session

from service.context import Context
from service.database.engine import reading
from service.detect.recipe import flat
from service.errors import NotFoundError
from service.hardware.throughput import RATE as SPEED
from service.runs.listing import Listing
from service.runs.repository import RunRepository, RunRow
from service.series.repository import Overview, SeriesRepository
from web.content.scene import TRAIN

MOST = 8  # runs beside each other
OFFERED = 200  # runs to choose from
STEP_TIME = "throughput/step_seconds"
NEWEST = 100  # points of training loss whose mean stands in the table


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of the table, by how much it differs from the first run's, and for a speed its ratio to the first's:
    None where that cannot be told."""

    value: float | None
    difference: float | None
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table: a metric, its unit ("nats", "tokens/s", nothing for an accuracy), a cell for each run."""

    metric: str
    unit: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """One run of the comparison. `tokens` is how far it is."""

    uuid: UUID
    name: str
    project: str
    role: str
    verdict: str | None
    step: int | None
    tokens: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry that is not the same in all configs that were sent; "–" where a run has no such entry."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The page. `at_tokens` is where the table reads all runs: the furthest point that all with
    data have reached. `offered` are runs that could be added; `alike` counts config entries that all runs share."""

    runs: tuple[Compared, ...]
    at_tokens: float | None
    lines: tuple[Line, ...]
    differences: tuple[Difference, ...]
    alike: int
    offered: tuple[tuple[UUID, str], ...]


def comparison(context: Context, uuids: Sequence[UUID]) -> Comparison:
    """Up to MOST runs, in the order asked for, each once.

    Raises:
        NotFoundError: there is no such run.
    """
    wanted = list(dict.fromkeys(uuids))[:MOST]
    with reading(context.engine) as session:
        rows = chosen_rows(session, wanted)
        offered, _ = RunRepository(session).page(Listing(archived=False), OFFERED)
        reach = [_tokens(row) for row in rows]
        at = min((tokens for tokens in reach if tokens is not None), default=None)
        configs = [_config(session, row) for row in rows]
        differences, alike = _differences(configs)
        return Comparison(
            runs=tuple(_compared(row) for row in rows),
            at_tokens=at,
            lines=_lines(session, rows, at) if at is not None else (),
            differences=differences,
            alike=alike,
            offered=tuple(
                (row.run.uuid, f"{row.run.name} ({row.project}, {row.run.stage})")
                for row in offered
                if row.run.uuid not in wanted
            ),
        )


def chosen_rows(session: Session, uuids: Sequence[UUID]) -> list[RunRow]:
    """These runs, each once, in this order; at most MOST.

    Raises:
        NotFoundError: there is no such run.
    """
    rows: list[RunRow] = []
    for uuid in list(dict.fromkeys(uuids))[:MOST]:
        row = RunRepository(session).row(uuid)
        if row is None:
            raise NotFoundError(f"There is no run {uuid}.")
        rows.append(row)
    return rows


def shared_metrics(session: Session, rows: Sequence[RunRow]) -> list[str]:
    """Losses, accuracies and speeds that at least one of the runs has: training loss first, accuracies last."""
    names = {name for row in rows for name in SeriesRepository(session).names(row.run.id)}
    held = sorted(name for name in names if name.startswith("heldout/") and name.endswith("/ce_loss"))
    tasks = sorted(name for name in names if name.startswith("downstream/") and name.endswith("/accuracy"))
    return [
        *(name for name in (TRAIN,) if name in names),
        *held,
        *tasks,
        *(n for n in (SPEED, STEP_TIME) if n in names),
    ]


def unit_of(metric: str) -> str:
    """The unit of a metric of the table."""
    return "nats" if metric.endswith("loss") else {SPEED: "tokens/s", STEP_TIME: "s"}.get(metric, "")


def _compared(row: RunRow) -> Compared:
    state = row.state
    return Compared(
        uuid=row.run.uuid,
        name=row.run.name,
        project=row.project,
        role=row.run.role,
        verdict=row.verdict.state if row.verdict else None,
        step=state.last_step if state else None,
        tokens=_tokens(row),
    )


def _tokens(row: RunRow) -> float | None:
    state = row.state
    return None if state is None or state.last_tokens is None else row.run.token_offset + state.last_tokens


def _lines(session: Session, rows: Sequence[RunRow], at: float) -> tuple[Line, ...]:
    series, lines = SeriesRepository(session), list[Line]()
    for metric in shared_metrics(session, rows):
        lines.append(_line(metric, [_value(series, row.run.id, metric, at) for row in rows]))
    tasks = [line for line in lines if line.metric.startswith("downstream/")]
    if len(tasks) > 1:  # the mean can tell what a single task cannot
        columns = zip(*([cell.value for cell in line.cells] for line in tasks), strict=True)
        known = [[value for value in column if value is not None] for column in columns]
        means = [float(np.mean(column)) if len(column) == len(tasks) else None for column in known]
        lines.insert(lines.index(tasks[0]), _line(f"mean of {len(tasks)} accuracies", means))
    return tuple(sorted(lines, key=lambda line: line in tasks))  # single tasks last


def _line(metric: str, values: Sequence[float | None]) -> Line:
    return Line(metric, unit_of(metric), (Cell(values[0], None), *(_cell(metric, v, values[0]) for v in values[1:])))


def _cell(metric: str, value: float | None, first: float | None) -> Cell:
    if value is None or first is None:
        return Cell(value, None)
    speeds = {SPEED: (value, first), STEP_TIME: (first, value)}.get(metric, (0.0, 0.0))
    return Cell(value, round(value - first, 9), speeds[0] / speeds[1] if speeds[1] > 0 else None)


def _value(series: SeriesRepository, run_id: int, metric: str, at: float) -> float | None:
    """The last value up to `at` tokens; of training loss and speeds, which are noisy, the mean of the last NEWEST."""
    whole = series.overview(run_id, metric, points=2000)
    last = _last_step(whole, at)
    if whole is None or last is None:
        return None
    if metric not in (TRAIN, SPEED, STEP_TIME):
        read = series.read(run_id, [metric], from_step=last, to_step=last).get(metric)
        values = read.values if read is not None else np.empty(0)
    else:
        read = series.read(run_id, [metric], from_step=max(last - 10 * NEWEST, 0), to_step=last).get(metric)
        values = read.values[-NEWEST:] if read is not None else np.empty(0)
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def _last_step(whole: Overview | None, at: float) -> int | None:
    if whole is None:
        return None
    reached = np.flatnonzero(whole.tokens <= at)
    return int(whole.steps[reached[-1]]) if len(reached) else None


def _config(session: Session, row: RunRow) -> Mapping[str, Any]:
    segments = RunRepository(session).live_segments(row.run.id)
    return flat(segments[-1].config) if segments else {}


def _differences(configs: Sequence[Mapping[str, Any]]) -> tuple[tuple[Difference, ...], int]:
    names = sorted({name for config in configs for name in config})
    found, alike = list[Difference](), 0
    for name in names:
        values = tuple(json.dumps(c[name], ensure_ascii=False) if name in c else "–" for c in configs)
        if len({value for value, config in zip(values, configs, strict=True) if config}) > 1:
            found.append(Difference(name, values))
        else:
            alike += 1
    return tuple(found), alike
