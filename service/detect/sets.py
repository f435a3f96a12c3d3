"""Which evaluation set a held-out loss is of: points of different sets are never put together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .inputs import RunView, Series

# An id made of the set's content, with the convention it is scored by; a name says nothing about the content.
DIGEST = re.compile(r"[0-9a-f]{8,64}(-.+)?")


@dataclass(frozen=True, slots=True)
class SetChange:
    """A metric's evaluation set became another one with the points from `step` on, after those up to `before`."""

    metric: str
    before: int
    step: int
    old: str
    new: str


def comparable(one: str, other: str) -> bool:
    """Whether two ids say if they are of one set: both made of content, or both names."""
    return bool(one) and bool(other) and (DIGEST.fullmatch(one) is None) == (DIGEST.fullmatch(other) is None)


def newest_change(view: RunView, metric: str, points: Series | None) -> SetChange | None:
    """The newest change of a metric's set; None while it was always one."""
    sets = _in_order(view.eval_sets.get(metric, ()))
    if len(sets) < 2:
        return None
    (_, old), (step, new) = sets[-2:]
    before = step
    if points is not None:
        at = int(np.searchsorted(points.steps, step))
        before = int(points.steps[at - 1]) if at else step
    return SetChange(metric, min(before, step), step, old, new)


def newest_set(view: RunView, metric: str) -> str:
    """The set that a metric is of now, "" where it is not said."""
    sets = _in_order(view.eval_sets.get(metric, ()))
    return sets[-1][1] if sets else ""


def other_than_the_reference(view: RunView, metric: str) -> str:
    """The reference's set, where the metric is surely of another one; else ""."""
    mine, theirs = newest_set(view, metric), view.recipe.sets.get(metric, "")
    return theirs if comparable(mine, theirs) and mine != theirs else ""


def on_one_set(view: RunView) -> RunView:
    """The view with each held-out loss cut to the points of its newest set; what is surely of another set than the
    reference's has no reference."""
    if not view.eval_sets:
        return view
    metrics, reference = dict(view.metrics), dict(view.reference)
    for metric in view.eval_sets:
        if metric in metrics:
            metrics[metric] = _of_newest(metrics[metric], _in_order(view.eval_sets[metric]))
        if metric in reference and other_than_the_reference(view, metric):
            del reference[metric]
    return replace(view, metrics=metrics, reference=reference)


def _in_order(sets: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Changes by step, each set once where it follows itself."""
    kept: list[tuple[int, str]] = []
    for step, name in sorted(sets, key=lambda s: s[0]):
        if kept and kept[-1][0] == step:
            kept[-1] = (step, name)
        elif not kept or kept[-1][1] != name:
            kept.append((step, name))
    return [s for i, s in enumerate(kept) if i == 0 or s[1] != kept[i - 1][1]]


def _of_newest(points: Series, sets: Sequence[tuple[int, str]]) -> Series:
    """The points of the newest set, in all stretches that are of it. Points before anything was said count as of the
    first one."""
    if len(sets) < 2:
        return points
    starts = np.array([step for step, _ in sets], np.int64)
    mine = np.array([name == sets[-1][1] for _, name in sets])
    keep = mine[np.maximum(np.searchsorted(starts, points.steps, side="right") - 1, 0)]
    return points if keep.all() else Series(points.steps[keep], points.tokens[keep], points.values[keep])
