"""Whether what is to be compared is in one unit: nats for losses, 0 to 1 for accuracies. Evidence, never a guess."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from service.importers.blocks import Floats
from service.importers.canonical import Target
from service.importers.survey import MetricFound, RunFound

TRAIN = "train/ce_loss"
UNITS = ("ppl", "bits", "percent")
# Before anything is memorized, a held-out loss is no further than this factor from some train loss before it.
SAME_UNIT = 3.0
SAME_LOSS = 0.25  # a perplexity's logarithm is this near to the other loss


@dataclass(frozen=True, slots=True)
class Settled:
    """Names -> targets that may be compared, and sentences about what was converted or not taken as a loss."""

    known: dict[str, Target]
    notes: list[str]


def settle(run: RunFound, known: Mapping[str, Target], chosen: Iterable[str]) -> Settled:
    """Check the units of one run's known metrics; `chosen` are names whose meaning the user gave.

    Perplexities and percentages are converted. Train and held-out losses whose first values lie further apart than
    any training begins are in different units: unless one of them is the other's perplexity, neither is taken as a
    loss; they stay under the log's own names.
    """
    found = run.metrics
    settled = {name: target for name, target in known.items() if name in found}
    notes: list[str] = []
    for name, target in list(settled.items()):
        if target.metric.startswith("downstream/") and 1.5 < _highest(found[name]) <= 100.0:
            settled[name] = replace(target, unit="percent")
            notes.append(f"{name} is in percent: divided by 100")
        elif target.unit:
            notes.append(f"{name} is {_spelled(target.unit)}: converted to nats as {target.metric}")
        elif target.converts:
            notes.append(f"{target.metric} = {target.formula(name)}: {target.why}")
    train = next((name for name, target in settled.items() if target.metric == TRAIN), None)
    held = [name for name, target in settled.items() if target.metric.startswith("heldout/")]
    if train is None or not held or train in chosen:
        return Settled(settled, notes)
    for name in held:
        notes += _compared(train, name, found, settled)
    return Settled(settled, notes)


def _compared(train: str, name: str, found: Mapping[str, list[MetricFound]], settled: dict[str, Target]) -> list[str]:
    if train not in settled or name not in settled:
        return []
    begin = _begin(found[train][0], settled[train], found[name][0], settled[name])
    if begin is None or begin.near():
        return []
    ours, theirs = begin.train, begin.held
    for high, low, loss in ((ours, theirs, train), (theirs, ours, name)):
        if high > 1 and low > 0 and abs(math.log(high) / low - 1.0) < SAME_LOSS and not settled[loss].unit:
            settled[loss] = replace(settled[loss], unit="ppl")
            return [f"{loss} is a perplexity (its logarithm is the other loss): converted to nats"]
    metric = settled[name].metric
    del settled[train], settled[name]
    return [
        f"{train} is {ours:.4g} where {name} begins with {theirs:.4g}: not one unit, so neither is taken as a loss and "
        f"both keep their own names (--map '{train}={TRAIN}' --map '{name}={metric}' says otherwise)"
    ]


@dataclass(frozen=True, slots=True)
class _Begin:
    """Where both losses are first known: each one's median over three such steps, and train's range until then."""

    train: float
    held: float
    lowest: float
    highest: float

    def near(self) -> bool:
        return self.lowest / SAME_UNIT < self.held < self.highest * SAME_UNIT


def _begin(train: MetricFound, ours: Target, held: MetricFound, theirs: Target) -> _Begin | None:
    steps, values = _curve(train, ours)
    if len(steps) < 2 or steps[0] > 2 * max(float(np.median(np.diff(steps))), 1.0):
        return None  # a summary, or a log that begins later: by then something may have been memorized
    at, found = _curve(held, theirs)
    both = (at >= steps[0]) & (at <= steps[-1]) if len(steps) else np.zeros(len(at), np.bool_)
    if not both.any():
        return None
    at, found = at[both][:3], found[both][:3]
    before = values[steps <= at[-1]]
    return _Begin(
        float(np.median(np.interp(at, steps, values))),
        float(np.median(found)),
        float(before.min()),
        float(before.max()),
    )


def _curve(metric: MetricFound, target: Target) -> tuple[Floats, Floats]:
    steps = np.array(metric.sample_steps, np.float64)
    values = np.array([target.value(value) for value in metric.sample], np.float64)
    good = np.isfinite(values)
    order = np.argsort(steps[good], kind="stable")
    return steps[good][order], values[good][order]


def _highest(found: list[MetricFound]) -> float:
    return max(metric.maximum for metric in found)


def _spelled(unit: str) -> str:
    return {"ppl": "a perplexity", "bits": "in bits"}.get(unit, unit)
