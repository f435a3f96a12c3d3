"""The bank of healthy pairs: how far runs of one experiment lay apart that differed in nothing that matters.

Statistics of public trainings, shipped as bank_pairs.csv with their sources and licences in bank_groups.toml.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from math import erf, log, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Differs = Literal["nothing", "hardware", "precision", "init", "order", "unknown"]
Phase = Literal["early", "middle", "late"]

WINDOWS = (25, 100, 500)  # steps under one mean of the train gap; an evaluation stands for itself (1)
LEAST_POINTS = 4  # of a window that counts
EARLY, MIDDLE = 0.10, 0.50  # of a run: where its early and its middle phase end
COMPARABLE = 10.0  # a scale within this factor is comparable, in parameters and in tokens a step, where both are known
ENOUGH_PAIRS = 3  # fewer set no tolerance


@dataclass(frozen=True, slots=True)
class Scale:
    """A training's scale; None where it is not known."""

    parameters: float | None = None
    tokens_per_step: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Trainings of one experiment: what they are, where their numbers come from, and in what they `differ`."""

    name: str
    title: str
    source: str
    licence: str
    scale: Scale
    differs: Differs


@dataclass(frozen=True, slots=True)
class Stat:
    """The gap of one healthy pair in one phase, in means over `window` steps (1: single evaluations), in nats.

    `offset` is the mean of those `n` means, `sd` their spread about it, `wander` their correlation from one to the next
    (None: too few), `largest` the largest in size."""

    group: Group
    pair: str
    metric: Literal["train", "heldout"]
    phase: Phase
    window: int
    n: int
    offset: float
    sd: float
    wander: float | None
    largest: float

    def below(self, size: float) -> float:
        """The share of such means that is nearer to zero than `size`, taken as normal about the offset."""
        if self.sd <= 0.0:
            return float(abs(self.offset) <= size)
        return _normal((size - self.offset) / self.sd) - _normal((-size - self.offset) / self.sd)


@dataclass(frozen=True, slots=True)
class Normality:
    """How a gap stands among healthy pairs: `percentile` (0 to 100) of healthy means that are nearer to zero, over
    `pairs` pairs of the groups `names`; `largest` is the largest of theirs. `comparable`: they are of the run's scale
    and differ as it does; else they are the nearest there are. `source` says all this in words."""

    percentile: float
    pairs: int
    names: tuple[str, ...]
    largest: float
    comparable: bool
    source: str


@lru_cache(maxsize=1)
def groups() -> dict[str, Group]:
    """The groups of the shipped bank, by name."""
    text = (resources.files("service.compare") / "bank_groups.toml").read_text("utf-8")
    return {
        name: Group(name, g["title"], g["source"], g["licence"], Scale(g.get("parameters"), g.get("tokens_per_step")),
                    g["differs"])
        for name, g in tomllib.loads(text).items()
    }  # fmt: skip


@lru_cache(maxsize=1)
def shipped() -> tuple[Stat, ...]:
    """The statistics of the shipped bank."""
    text = (resources.files("service.compare") / "bank_pairs.csv").read_text("utf-8")
    known = groups()
    return tuple(
        Stat(
            known[r["group"]], r["pair"], "heldout" if r["metric"] == "heldout" else "train", _phase(r["phase"]),
            int(r["window"]), int(r["n"]), float(r["offset"]), float(r["sd"]),
            float(r["wander"]) if r["wander"] else None, float(r["largest"]),
        )
        for r in csv.DictReader(text.splitlines())
    )  # fmt: skip


def phase_of(place: float) -> Phase:
    """The phase of a place in the run, 0 to 1."""
    return "early" if place < EARLY else "middle" if place < MIDDLE else "late"


def statistics(
    group: Group, pair: str, metric: Literal["train", "heldout"], steps: Ints, gap: Floats, length: int
) -> list[Stat]:
    """Statistics of one pair's gap (n,) at `steps` (n,) of a run of `length` steps, by phase and window."""
    made: list[Stat] = []
    windows = (1,) if metric == "heldout" else WINDOWS
    for window in windows:
        begin, means = _means(steps, gap, window)
        for phase in ("early", "middle", "late"):
            inside = np.array([phase_of(float(s) / length) == phase for s in begin], bool)
            values = means[inside]
            if len(values) == 0:
                continue
            offset = float(values.mean())
            rest = values - offset
            power = float((rest**2).sum())
            wander = float((rest[1:] * rest[:-1]).sum() / power) if len(values) >= 8 and power > 0.0 else None
            sd = float(values.std(ddof=1)) if len(values) > 1 else 0.0
            made.append(Stat(group, pair, metric, phase, window, len(values), offset, sd, wander,
                             float(np.abs(values).max())))  # fmt: skip
    return made


def normality(
    gap: float, metric: str, scale: Scale, differs: Differs, phase: Phase, window: int = 500,
    stats: Sequence[Stat] | None = None,
) -> Normality | None:  # fmt: skip
    """Where a gap (nats, of a mean over `window` steps, or of one evaluation) stands among healthy pairs of comparable
    scale that differ as the run does; among the nearest there are, where there is none; None for other metrics.

    Every pair counts alike; a pair's own means are taken as normal about its offset. `metric` is the metric's name."""
    kind = "heldout" if metric.startswith("heldout/") else "train" if metric == "train/ce_loss" else None
    if kind is None or not np.isfinite(gap):
        return None
    found, near = _chosen(None if stats is None else tuple(stats), kind, scale, differs, phase, window)
    if not found:
        return None
    share = sum(s.below(abs(gap)) for s in found) / len(found)
    names = tuple(dict.fromkeys(s.group.name for s in found))
    largest = max(s.largest for s in found)
    return Normality(100.0 * share, len(found), names, largest, near, _told(found, phase, comparable=near))


@lru_cache(maxsize=64)
def _chosen(
    stats: tuple[Stat, ...] | None, kind: str, scale: Scale, differs: Differs, phase: Phase, window: int
) -> tuple[tuple[Stat, ...], bool]:
    """The statistics a gap is set beside (of the shipped ones: None), one for each pair, and whether they are
    comparable."""
    own = [s for s in (shipped() if stats is None else stats) if s.metric == kind and s.phase == phase]
    alike = [s for s in own if _differs_alike(s, differs)]
    near = [s for s in alike if comparable(s.group.scale, scale)]
    if kind == "heldout" and len(near) < ENOUGH_PAIRS:  # neither order nor weights move it more than the other
        near = [s for s in own if comparable(s.group.scale, scale)]
    return tuple(_at_window(near or _nearest(alike, scale) or _nearest(own, scale), window)), bool(near)


def bank_tolerance(
    metric: str, scale: Scale, differs: Differs, window: int, factor: float, stats: Sequence[Stat] | None = None
) -> tuple[float, int, str] | None:
    """A tolerance from the bank: `factor` root mean squares of the late window means of comparable pairs, with how many
    pairs it rests on and its source in words; None with fewer than three pairs of that scale and difference."""
    kind = "heldout" if metric.startswith("heldout/") else "train"
    own = [s for s in (shipped() if stats is None else stats) if s.metric == kind and s.phase != "early"]
    near = [s for s in own if comparable(s.group.scale, scale) and _differs_alike(s, differs)]
    near = _at_window(near, window)
    pairs = len({(s.group.name, s.pair) for s in near})
    if pairs < ENOUGH_PAIRS:
        return None
    rms = sqrt(float(np.mean([s.offset**2 + s.sd**2 for s in near])))
    names = ", ".join(dict.fromkeys(s.group.name for s in near))
    what = "evaluations" if near[0].window == 1 else f"{near[0].window}-step means"
    words = f"bank of healthy pairs: {factor:g} sd of the gaps of {what} of {pairs} pairs of like scale ({names})"
    return factor * rms, pairs, words


def comparable(one: Scale, other: Scale) -> bool:
    """Whether two scales lie within a factor of ten in what is known of both; without the parameters of both they do
    not."""
    if one.parameters is None or other.parameters is None:
        return False
    if _apart(one.parameters, other.parameters) > log(COMPARABLE):
        return False
    known = one.tokens_per_step and other.tokens_per_step
    return not known or _apart(one.tokens_per_step or 1.0, other.tokens_per_step or 1.0) <= log(COMPARABLE)


def _apart(one: float, other: float) -> float:
    return abs(log(max(one, 1.0) / max(other, 1.0)))


def _differs_alike(stat: Stat, run: Differs) -> bool:
    """Where it is not known how the run differs, its data order may: that moves the train loss most of all."""
    if run == "unknown":
        return stat.metric == "heldout" or stat.group.differs == "order"
    return stat.group.differs == run


def _nearest(stats: Sequence[Stat], scale: Scale) -> list[Stat]:
    """Those of the scale nearest to the run's: in parameters where these are known, else in tokens a step."""

    def off(stat: Stat) -> float:
        own = stat.group.scale
        if scale.parameters is not None:
            return _apart(own.parameters, scale.parameters) if own.parameters else float("inf")
        return _apart(own.tokens_per_step or 1.0, scale.tokens_per_step or 1.0)

    best = min((off(s) for s in stats), default=0.0)
    return [s for s in stats if off(s) == best]


def _at_window(stats: Sequence[Stat], window: int) -> list[Stat]:
    """Of each pair the statistic whose window is nearest to the run's."""
    best: dict[tuple[str, str, str], Stat] = {}
    for stat in stats:
        key = (stat.group.name, stat.pair, stat.phase)
        held = best.get(key)
        if held is None or _apart(stat.window, window) < _apart(held.window, window):
            best[key] = stat
    return list(best.values())


def _told(found: Sequence[Stat], phase: Phase, *, comparable: bool) -> str:
    by_group: dict[str, list[Stat]] = {}
    for stat in found:
        by_group.setdefault(stat.group.name, []).append(stat)
    parts = [
        f"{len(own)} pair{'s' if len(own) != 1 else ''} of {name} ({own[0].group.title}; differs: "
        f"{own[0].group.differs}; {own[0].group.licence})"
        for name, own in by_group.items()
    ]
    what = "single evaluations" if found[0].window == 1 else f"means over {found[0].window} steps"
    head = "healthy pairs" if comparable else "none is known of this scale and difference; the nearest healthy pairs"
    return f"{head}, {phase} phase, {what}: {'; '.join(parts)}"


def _means(steps: Ints, gap: Floats, window: int) -> tuple[Ints, Floats]:
    """First step of each window that is filled well enough, and the mean of its gap."""
    keep = np.isfinite(gap)
    steps, gap = steps[keep], gap[keep]
    if window == 1 or len(steps) == 0:
        return steps, gap
    index = (steps - 1) // window
    starts = np.flatnonzero(np.diff(index, prepend=index[0] - 1))
    counts = np.diff(np.append(starts, len(index)))
    means = np.add.reduceat(gap, starts) / counts
    # Evenly filled: a log that begins with single steps and goes on thinned is no mean of its first window.
    ends = np.append(starts[1:], len(index))
    apart = [np.diff(steps[a:b]) for a, b in zip(starts, ends, strict=True)]
    spacing = np.array([np.median(own) if len(own) else 0.0 for own in apart])
    enough = (counts >= LEAST_POINTS) & (2.0 * spacing * counts >= window)
    return index[starts][enough] * window, means[enough]


def _phase(text: str) -> Phase:
    return "early" if text == "early" else "middle" if text == "middle" else "late"


def _normal(x: float) -> float:
    return 0.5 * (1.0 + erf(x / sqrt(2.0)))
