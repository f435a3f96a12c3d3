"""What a rule may look at. Pure data: no database, no HTTP, nothing superseded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .facts import Arrivals, Happening, HeldoutHits, Items, Recipe

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Series:
    """One metric, sorted by step: `steps` int64, `tokens` float64 on the project's axis, `values` float64, all (n,)."""

    steps: Ints
    tokens: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def first(self, points: int) -> Series:
        """The first so many points."""
        return Series(self.steps[:points], self.tokens[:points], self.values[:points])


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a healthy reproduction may wander in one metric.

    `value` is in the metric's unit, for block means over `window_steps` steps; `noise_sd` is the standard deviation of
    one step's value about its local mean; `runs` is the number of healthy runs it rests on (0: an assumed default);
    `source` says so in words. `change`, where known, is the same for the distance of a run's gap from its own settled
    offset, which is smaller than the spread of those offsets.
    """

    value: float
    source: str
    runs: int = 0
    noise_sd: float | None = None
    window_steps: int | None = None
    change: float | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One live trainer start: updates already made, when (unix seconds), number of data shards (hosts) it declared.

    `config`, `versions` and `topology` are JSON as the trainer sent them; `rates`: (first update, tokens each)."""

    start_step: int
    started_at: float
    hosts: int
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    versions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    topology: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rates: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RowReadings:
    """Sampled row fingerprints of the live points, in reading order (step ascending).

    `steps` int64 (n,), `hosts` int64 (n,), `hashes` uint64 (n,), parallel. Only hashes = 0 modulo `sample` are there.
    `seen_steps` int64 (m,) ascending and `seen_rows` int64 (m,): rows read in all at each reported step, by all hosts.
    """

    steps: Ints
    hosts: Ints
    hashes: NDArray[np.uint64]
    sample: int
    seen_steps: Ints
    seen_rows: Ints


@dataclass(frozen=True, slots=True)
class DeclaredData:
    """What the trainer said it would read: distinct rows in the data set, and how many passes over them are planned.

    `copies`: how often a pass may hold one row, where parts of the mix are upsampled on purpose."""

    rows: int
    epochs: float = 1.0
    copies: int = 1


@dataclass(frozen=True, slots=True)
class RuleSetting:
    """What people have set for one rule, None or "" where they have not; each source says who, where and why.

    `tolerance` in the rule's own unit, in place of the shipped one; `minimum`: observations an answer must rest on;
    `off`: the rule is not judged, and why."""

    tolerance: float | None = None
    tolerance_source: str = ""
    minimum: int | None = None
    minimum_source: str = ""
    off: str = ""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A known difference from the reference's recipe: `item` is the part of the recipe it is in.

    `budgets`: metric -> how far the run may lie from the reference because of it, signed, in the metric's unit. In
    force from both starts on to the first of its ends, inclusive; tokens are on the project's axis."""

    text: str
    item: str
    budgets: Mapping[str, float]
    from_step: int = 0
    from_tokens: float | None = None
    end_step: int | None = None
    end_tokens: float | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class RunView:
    """One run beside its reference, as known at one moment.

    `metrics` and `reference` map canonical metric names to series; `siblings` holds the same for healthy reruns of the
    reference. `heldout` names the held-out loss that counts first. `reference_name` and `reference_version` are cited.
    """

    metrics: Mapping[str, Series]
    reference: Mapping[str, Series]
    tolerances: Mapping[str, Tolerance]
    segments: Sequence[Segment]
    reference_name: str = ""
    reference_version: str = ""
    heldout: str = ""
    siblings: Sequence[Mapping[str, Series]] = ()
    rows: RowReadings | None = None
    windows: RowReadings | None = None  # of 32 tokens, chosen by content: text read again in other rows shows here
    data: DeclaredData | None = None
    expected_rows: RowReadings | None = None  # those of the reference
    schedule: Series | None = None  # the reference's learning rate over tokens by its formula, where none was logged
    tasks: Mapping[str, int] = field(default_factory=dict[str, int])  # task key -> number of items
    same_order_declared: bool = False  # the run says that it reads the reference's batches in the reference's order
    settings: Mapping[str, RuleSetting] = field(default_factory=dict[str, RuleSetting])  # by rule
    deviations: Sequence[Deviation] = ()
    arrivals: Arrivals | None = None  # of a live judgement only: None where a stored run is judged again
    happenings: Sequence[Happening] = ()  # live ones, by step
    # metric -> (first step, evaluation set), in the order in which they were declared
    eval_sets: Mapping[str, Sequence[tuple[int, str]]] = field(default_factory=dict[str, Sequence[tuple[int, str]]])
    items: Mapping[str, Sequence[Items]] = field(default_factory=dict[str, Sequence[Items]])  # by task
    reference_items: Mapping[str, Sequence[Items]] = field(default_factory=dict[str, Sequence[Items]])
    heldout_hits: Mapping[str, HeldoutHits] | None = None  # by held-out set; None where nothing looks for them
    recipe: Recipe = field(default_factory=Recipe)  # the reference's

    def limit(self, rule: str, shipped: float, source: str) -> tuple[float, str]:
        """A rule's limit and its source: what was set for the rule, else the shipped one."""
        setting = self.settings.get(rule)
        if setting is None or setting.tolerance is None:
            return shipped, source
        return setting.tolerance, f"{setting.tolerance_source}; shipped: {shipped:.4g}, {source}"
