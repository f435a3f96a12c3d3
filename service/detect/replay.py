"""Causal replay: what would have been said at each moment, from the same pure functions that judge live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from .engine import evaluate
from .facts import HeldoutHits
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
        windows=_cut_rows(view.windows, step),
        arrivals=None,  # the clock is that of now
        happenings=[h for h in view.happenings if h.step <= step],
        eval_sets={
            metric: kept for metric, sets in view.eval_sets.items() if (kept := [s for s in sets if s[0] <= step])
        },
        items={task: kept for task, items in view.items.items() if (kept := [i for i in items if i.step <= step])},
        heldout_hits=view.heldout_hits and {name: _cut_hits(hits, step) for name, hits in view.heldout_hits.items()},
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


def _cut_hits(hits: HeldoutHits, step: int) -> HeldoutHits:
    keep, seen, long = hits.steps <= step, hits.seen_steps <= step, hits.long_steps <= step
    return replace(
        hits, steps=hits.steps[keep], hashes=hits.hashes[keep], seen_steps=hits.seen_steps[seen],
        seen_rows=hits.seen_rows[seen], long_steps=hits.long_steps[long], long_windows=hits.long_windows[long],
    )  # fmt: skip
