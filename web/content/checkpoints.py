"""Held-out losses and accuracies at the newest checkpoints, each inside the tolerance, outside, or not to be told."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.database.models import Run
from service.judgements.view import UnknownReferenceError, reference_view
from service.references.describe import description
from service.references.repository import ReferenceRepository
from service.reports.beside import compare
from service.reports.document import Cell
from service.series.repository import SeriesRepository
from web import formatting

MOST = 12  # checkpoints, the newest


@dataclass(frozen=True, slots=True)
class Column:
    """One checkpoint."""

    step: int
    tokens: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One metric: its tolerance in words, and for each checkpoint its value, its deviation, and how it stands."""

    title: str
    tolerance: str
    cells: Sequence[tuple[str, str, str, str] | None]


@dataclass(frozen=True, slots=True)
class CheckpointTable:
    """The table, the newest checkpoint first; `of` is how many there are in all."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    of: int


def checkpoint_table(session: Session, run: Run) -> CheckpointTable:
    """The newest checkpoints of a run beside its reference."""
    view = None
    with contextlib.suppress(UnknownReferenceError):
        view = reference_view(session, run)
    reference = ReferenceRepository(session).current(run.reference) if run.reference else None
    series = SeriesRepository(session)
    names = [name for name in series.names(run.id) if name.startswith(("heldout/", "downstream/"))]
    found = compare(session, series, run, view, description(reference) if reference else None, names)
    steps, tokens = found.evaluations()
    shown = [one for one in found.all if one is not found.train]
    if not shown:
        return CheckpointTable([], [], 0)
    newest = zip(steps[-MOST:][::-1].tolist(), tokens[-MOST:][::-1].tolist(), strict=True)
    columns = [Column(step, at if math.isfinite(at) else None) for step, at in newest]
    rows: list[Row] = []
    for one in shown:
        row = one.row([column.step for column in columns])
        tolerance = "not known" if row.tolerance is None else f"±{formatting.number(row.tolerance)}"
        rows.append(Row(row.title, f"{tolerance} {row.unit}", [_cell(cell) for cell in row.cells]))
    return CheckpointTable(columns, rows, len(steps))


def _cell(cell: Cell | None) -> tuple[str, str, str, str] | None:
    if cell is None:
        return None
    deviation = "" if cell.deviation is None else formatting.signed(cell.deviation)
    if deviation and cell.half_width is not None:
        deviation += f" ± {formatting.number(cell.half_width)}"
    return formatting.number(cell.run), deviation, cell.stand, cell.because
