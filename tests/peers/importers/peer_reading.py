"""What Pacenote stores of a log, to be laid beside what the log's own program reads from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from service.database.engine import open_engine
from service.database.migrate import ensure_schema
from service.importers.folders import Found, find
from service.importers.job import Options, Preview, look, store

# run -> metric -> (step, value), values spelled so that NaN equals NaN
Values = dict[str, dict[str, list[tuple[int, str]]]]


def read_back(found: Found | Path, folder: Path) -> Values:
    """Every value of a log's runs as our reader gives it, sorted; that all are stored is checked on the way."""
    (group,) = (find(found) if isinstance(found, Path) else found).groups
    options = Options("peer", tokens_per_step=1)
    preview = look(group, options)
    engine = open_engine(f"sqlite:///{folder / 'pacenote.db'}")
    try:
        ensure_schema(engine)
        report = store(engine, preview, options)
    finally:
        engine.dispose()
    assert report.read == report.stored + report.superseded + report.refused.total()
    return values_of(preview)


def values_of(preview: Preview) -> Values:
    """The values a preview holds."""
    made: Values = {}
    for block in preview.survey.kept or pytest.fail("the log is too large for this test"):
        for metric, (values, _) in block.columns.items():
            pairs = zip(block.steps_of(metric).tolist(), values.tolist(), strict=True)
            made.setdefault(block.run, {}).setdefault(metric, []).extend((step, repr(value)) for step, value in pairs)
    return {run: {name: sorted(pairs) for name, pairs in metrics.items()} for run, metrics in made.items()}


def spelled(runs: Mapping[str, Mapping[str, Sequence[tuple[Any, Any]]]]) -> Values:
    """What another program says, in the same spelling."""
    return {
        run: {name: sorted((int(step), repr(float(value))) for step, value in pairs) for name, pairs in metrics.items()}
        for run, metrics in runs.items()
    }
