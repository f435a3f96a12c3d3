"""Cuts a log where the training went back: each piece is one start of the trainer, as it would have reported itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from service.importers.canonical import TOKENS, Target
from service.importers.rows import Row

TRAIN = "train/"


@dataclass(slots=True)
class Attempt:
    """Points of one start: step -> metric -> value, steps in the log's order. `times` holds a step's time if known."""

    points: dict[int, dict[str, float]] = field(default_factory=dict[int, dict[str, float]])
    times: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def start_step(self) -> int:
        """Updates made before it: one less than its first training step; its first step if it only evaluates."""
        trained = [step for step, values in self.points.items() if any(name.startswith(TRAIN) for name in values)]
        return max(min(trained) - 1, 0) if trained else min(self.points)


def attempts(rows: Iterable[Row], known: Mapping[str, Target], *, in_time_order: bool) -> list[Attempt]:
    """The known metrics of a log, under their own names, cut where a metric's step falls below its last one.

    A step that comes again at once replaces the value. Where rows are not in order of time (a long table, sorted by
    metric) nothing is cut and each series is put in order.
    """
    made = [Attempt()]
    last: dict[str, int] = {}
    losses = {name: target for name, target in known.items() if target.minus}
    terms = {term for target in losses.values() for term in target.minus}
    held: list[dict[str, dict[int, float]]] = [{}]  # of each attempt, by the log's own names and steps
    for row in rows:
        target = known.get(row.metric)
        if row.metric in terms:
            held[-1].setdefault(row.metric, {})[row.step] = row.value
        if target is None or target.metric == TOKENS:
            continue
        step = row.step + target.shift
        if step < 0:
            continue
        if in_time_order and step < last.get(target.metric, 0):
            made.append(Attempt())
            held.append({name: {row.step: row.value} for name in [row.metric] if name in terms})
            last.clear()
        last[target.metric] = step
        attempt = made[-1]
        attempt.points.setdefault(step, {})[target.metric] = target.value(row.value)
        if row.time is not None:
            attempt.times[step] = row.time
    for attempt, beside in zip(made, held, strict=True):
        for target in losses.values():
            _subtract(attempt.points, beside, target)
    return [attempt for attempt in made if attempt.points]


def _subtract(points: dict[int, dict[str, float]], beside: Mapping[str, Mapping[int, float]], target: Target) -> None:
    """Take what a loss contains away from it; where that is not told at its step, the loss is not known there."""
    if not any(term in beside for term in target.minus):
        return  # this start did not have it
    for step in [step for step, values in points.items() if target.metric in values]:
        found = [beside.get(term, {}).get(step - target.shift) for term in target.minus]
        terms = [term for term in found if term is not None]
        if len(terms) == len(found):
            points[step][target.metric] -= sum(terms) / target.divisor
            continue
        del points[step][target.metric]
        if not points[step]:
            del points[step]
