"""Turns a log's own metric names and step counts into Pacenote's, by the data files in names/."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from service.importers.rows import LogError

TOKENS = "tokens"  # the target of names that count tokens consumed: they place points, and are no metric
NAMES = Path(__file__).parent / "names"
ONE_ROW = "runs_table"  # the format that has one row per run
CANONICAL = re.compile(
    r"train/(ce_loss|z_loss|scored_tokens)|optim/(learning_rate|grad_norm|skipped)|heldout/[^/]+/ce_loss"
    r"|downstream/[^/]+/accuracy|throughput/(tokens_per_second_per_device|step_seconds)|data/.+"
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a name stands for; `shift` is added to its steps, so that they count updates made.

    `unit` is what the log's values are in where that is not the metric's own: "ppl" (perplexity for a loss in nats),
    "bits" (for a loss in nats), "percent" (for an accuracy from 0 to 1). `minus` are names of the log whose values at
    the same step the value contains, and which are taken away from it, each divided by `divisor`; where there are none,
    the value itself is divided. `why` says why, where it is not the unit.
    """

    metric: str
    shift: int = 0
    unit: str = ""
    minus: tuple[str, ...] = ()
    divisor: float = 1.0
    why: str = ""

    @property
    def converts(self) -> bool:
        """Whether values are stored otherwise than they are in the log."""
        return bool(self.unit or self.minus or self.divisor != 1.0)

    def formula(self, name: str) -> str:
        """What becomes of the values of a name, in the log's names; empty where they stay as they are."""
        by = f" / {self.divisor:g}" if self.divisor != 1.0 else ""
        if self.minus:
            return " - ".join([name, *(f"{term}{by}" for term in self.minus)])
        return {"ppl": f"ln({name})", "bits": f"{name} x ln 2", "percent": f"{name} / 100"}.get(
            self.unit, name + by if by else ""
        )

    def value(self, value: float) -> float:
        """A value of the log in the metric's unit; what it contains (`minus`) is still in it."""
        if not self.minus:
            value /= self.divisor
        if self.unit == "ppl":
            return math.log(value) if value > 0 else float("nan")
        return value * {"bits": math.log(2), "percent": 0.01}.get(self.unit, 1.0)


def converted(values: NDArray[np.float64], target: Target) -> NDArray[np.float64]:
    """Values (n,) of the log in the target's unit; what they contain (`minus`) is still in them."""
    if target.unit == "ppl":
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(values > 0, np.log(values), np.nan)
    return values * target.value(1.0) if target.converts else values


@dataclass(frozen=True, slots=True)
class _Entry:
    pattern: re.Pattern[str]
    to: str
    shift: int
    unit: str
    requires: str  # a name that must occur too
    minus: tuple[tuple[str, ...], ...]  # what the value contains: the first of these of which all occur
    summed: bool  # over microbatches: what it contains, or where that is nothing the value itself
    why: str

    def occurs(self, groups: Mapping[str, str], names: Collection[str]) -> bool:
        return not self.requires or self.requires.format(**groups) in names

    def target(self, metric: str, names: Collection[str], accumulation: int) -> Target:
        minus = next((terms for terms in self.minus if all(term in names for term in terms)), ())
        divided = self.summed and (bool(minus) or not self.minus)
        why = self.why if minus or (divided and accumulation > 1) else ""
        return Target(metric, self.shift, self.unit, minus, float(accumulation) if divided else 1.0, why)


@dataclass(frozen=True, slots=True)
class _Map:
    title: str
    formats: tuple[str, ...]  # empty: tables and JSON lines of any trainer
    entries: tuple[_Entry, ...]
    no_sets: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()  # names that are no measurement where a table has one row per run

    def is_set(self, groups: Mapping[str, str]) -> bool:
        """Whether what stands where a set's name does can be one."""
        words = groups.get("set", "").lower().replace("-", "_")
        return words.removeprefix("avg_").removeprefix("mean_") not in self.no_sets


@dataclass(frozen=True, slots=True)
class Naming:
    """Which of a log's names are known (name -> target), by which maps, and which are not."""

    known: Mapping[str, Target]
    maps: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])


def naming(
    format_name: str, names: Iterable[str], chosen: Mapping[str, str] | None = None, accumulation: int = 1
) -> Naming:
    """Map `names`, as they occur in a log, to canonical metrics; `chosen` (name -> metric) goes before everything.

    Where several names of one map mean the same metric, the one that stands first in the map counts. `accumulation` is
    how many microbatches made one step, for trainers that sum over them.

    Raises:
        LogError: a chosen name does not occur, or two names of the log mean one metric and nothing prefers one.
    """
    names = list(names)
    chosen = chosen or {}
    check_chosen(names, chosen)
    known = {name: Target(metric) for name, metric in chosen.items()}
    taken = set(chosen.values())
    for name in names:
        if name not in known and CANONICAL.fullmatch(name) and name not in taken:
            known[name] = Target(name)
            taken.add(name)
    used: list[str] = []
    for one in _maps():
        if (one.formats and format_name not in one.formats) or (not one.formats and format_name in _own_formats()):
            continue
        meant = [name for name in names if name not in known and not (format_name == ONE_ROW and name in one.settings)]
        found = _apply(one, meant, names, taken, accumulation)
        if found:
            known |= found
            taken |= {target.metric for target in found.values()}
            used.append(one.title)
    return Naming(known, used, [name for name in names if name not in known])


def check_chosen(names: Iterable[str], chosen: Iterable[str]) -> None:
    """Refuse chosen names that do not occur.

    Raises:
        LogError: one does not.
    """
    names = list(names)
    for name in chosen:
        if name not in names:
            raise LogError(f"--map: the log holds no {name!r}; it holds {_listed(names)}")


def _apply(one: _Map, names: list[str], every: list[str], taken: set[str], accumulation: int) -> dict[str, Target]:
    found: dict[str, Target] = {}
    owner: dict[str, str] = {}
    for entry in one.entries:
        for name in names:
            own = name.rpartition(" - ")[2]  # W&B: "<run> - <metric>"
            match = entry.pattern.fullmatch(name) or entry.pattern.fullmatch(own)
            if match is None or name in found or not entry.occurs(match.groupdict(), every):
                continue
            if not one.is_set(match.groupdict()):
                continue
            metric = entry.to.format(**{key: text.replace("-", "_") for key, text in match.groupdict().items()})
            rival = owner.get(metric)
            if metric in taken or (rival is not None and entry.pattern.fullmatch(rival.rpartition(" - ")[2]) is None):
                continue
            if rival is not None:
                raise LogError(f"{rival!r} and {name!r} both mean {metric}: choose one with --map '{name}={metric}'")
            found[name], owner[metric] = entry.target(metric, every, accumulation), name
    return found


@cache
def _maps() -> tuple[_Map, ...]:
    """Every map; the usual names come last."""
    maps: list[_Map] = []
    for path in sorted(NAMES.glob("*.toml"), key=lambda path: (path.stem == "usual", path.stem)):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        entries = [
            _Entry(
                _pattern(name),
                e["to"],
                e.get("shift", 0),
                e.get("unit", ""),
                e.get("requires", ""),
                tuple(tuple(terms) for terms in e.get("minus", ())),
                e.get("summed", False),
                e.get("why", ""),
            )
            for name, e in content["metrics"].items()
        ]
        formats, no_sets = tuple(content.get("formats", ())), frozenset(content.get("no_sets", ()))
        settings = frozenset(content.get("settings", ()))
        maps.append(_Map(content["title"], formats, tuple(entries), no_sets, settings))
    return tuple(maps)


@cache
def _own_formats() -> frozenset[str]:
    """Formats whose names mean something only there."""
    return frozenset(name for one in _maps() for name in one.formats)


def _pattern(name: str) -> re.Pattern[str]:
    """`{set}` in a name stands for any text without a slash."""
    parts = re.split(r"\{(\w+)\}", name)
    return re.compile("".join(f"(?P<{p}>[^/]+?)" if i % 2 else re.escape(p) for i, p in enumerate(parts)))


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
