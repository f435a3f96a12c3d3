"""Imports files into a database, and checks every report against what the database then holds."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, func, select

from service.database.engine import reading
from service.database.models import Chunk, Metric
from service.importers.folders import find
from service.importers.job import Options, Preview, Report, look, store
from service.series.journal import TIME, TOKENS
from service.series.repository import SeriesRepository

GOLDEN = Path(__file__).parents[1] / "golden" / "logs"
Series = dict[int, float]


def previewed(path: Path, options: Options) -> Preview:
    """The preview of a path that holds one log."""
    (group,) = find(path).groups
    return look(group, options)


def imported(engine: Engine, path: Path, options: Options | None = None) -> Report:
    """Import a path that holds one log; the report is checked."""
    options = options or Options("test", tokens_per_step=1000)
    report = store(engine, previewed(path, options), options)
    check(engine, report)
    return report


def check(engine: Engine, report: Report) -> None:
    """Rows in = stored + superseded + refused, and that is what the store holds."""
    assert report.read == report.stored + report.superseded + report.refused.total()
    written = live = 0
    with reading(engine) as session:
        for _, outcome in report.runs.values():
            chunks = select(func.sum(Chunk.points)).where(
                Chunk.segment_id.in_(outcome.segments), Chunk.metric_id.not_in((TIME, TOKENS))
            )
            written += session.scalar(chunks) or 0
            names = session.scalars(select(Metric.name).where(Metric.run_id == outcome.run_id)).all()
            points = SeriesRepository(session).read(outcome.run_id, list(names)).values()
            live += sum(int((read.segments == segment).sum()) for read in points for segment in outcome.segments)
    assert written == report.stored + report.superseded + report.copies
    assert report.stored <= live <= report.stored + report.copies
    assert live == report.stored + report.copies or report.superseded


def series(engine: Engine, report: Report, metric: str, run: str | None = None) -> Series:
    """The live points of one metric, of the only run or of one by name."""
    outcome = report.runs[run][1] if run else next(iter(report.runs.values()))[1]
    with reading(engine) as session:
        found = SeriesRepository(session).read(outcome.run_id, [metric]).get(metric)
    return {} if found is None else dict(zip(found.steps.tolist(), found.values.tolist(), strict=True))
