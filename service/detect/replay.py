"""Causal replay: what would have been said at each moment, from the same pure functions that judge live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from .engine import evaluate
from .gaps import LevelCache
from .inputs import RowReadings, RunView, Series
from .judgement import Judgement


def prefix(view: RunView, step: int) -> RunView:
    """The view as known when step `step` had been logged: later points, row readings and segments left out."""
    return replace(
        view,
        metrics=_cut(view.metrics, step),
        segments=[s for s in view.segments if s.start_step < step] or list(view.segments[:1]),
        rows=_cut_rows(view.rows, step),
    )


def judge_prefixes(view: RunView, at_steps: Iterable[int]) -> list[list[Judgement]]:
    """All judgements as of each step. Each equals `evaluate(prefix(view, step))`: nothing later is looked at."""
    cache = LevelCache()
    return [evaluate(prefix(view, step), cache) for step in at_steps]


def _cut(metrics: Mapping[str, Series], step: int) -> dict[str, Series]:
    cut: dict[str, Series] = {}
    for name, series in metrics.items():
        n = int(np.searchsorted(series.steps, step, side="right"))
        if n:
            cut[name] = Series(series.steps[:n], series.tokens[:n], series.values[:n])
    return cut


def _cut_rows(rows: RowReadings | None, step: int) -> RowReadings | None:
    if rows is None:
        return None
    keep, seen = rows.steps <= step, rows.seen_steps <= step
    return RowReadings(
        rows.steps[keep], rows.hosts[keep], rows.hashes[keep], rows.sample, rows.seen_steps[seen], rows.seen_rows[seen]
    )
