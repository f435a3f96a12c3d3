"""What is known of a run beside its series: when data came, what happened, single items, hits, recipe. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When data came, by the clock of the service that received them; only a live judgement has it. Unix seconds.

    `last` is when anything came last; `heard_since` since when this service listens; `times` (n,) ascending are those
    of the newest logged steps, by the trainer's clock, and left out while the last data are fresh; `finished`: the
    trainer said that it has ended.
    """

    now: float
    last: float
    heard_since: float
    times: Floats
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened at `step`: `kind` as the trainer or the service calls it, `text` in its own words."""

    step: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """Which items of one task a checkpoint got right: `correct` bool (n,), in the task's own item order."""

    step: int
    correct: Bools


@dataclass(frozen=True, slots=True)
class HeldoutHits:
    """Passages of one held-out set that were met in training rows, of which 1 in `sample` was looked through.

    `steps` int64 (n,) ascending and `hashes` uint64 (n,): one met window of each row that holds a passage, several
    windows of the set. 1 window in `rate` is looked for, `windows` in all; `pieces` rows hold at least one of them, a
    passage or not, and `met` windows stood in these (0: not known). `seen_steps` int64 (m,) ascending and
    `seen_rows` int64 (m,): training rows that were looked through at each step. `long_steps` int64 (k,) ascending and
    `long_windows` int64 (k,): rows that hold so many windows that they are whole documents of the set, each text once,
    where it came first, and how many windows. `natural` is the share of rows with a
    hit that any corpus shows (boilerplate, quotations), where it was measured; None: assumed."""

    steps: Ints
    hashes: NDArray[np.uint64]
    sample: int
    seen_steps: Ints
    seen_rows: Ints
    natural: float | None = None
    rate: int = 1
    windows: int = 0
    pieces: int = 0
    met: int = 0
    long_steps: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    long_windows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Loss:
    """How a training loss is defined; None or "" where it is not said.

    `definition` in words; `z_loss`: whether z-loss is in it; `scored_share`: scored tokens over consumed ones."""

    definition: str = ""
    unit: str = ""
    z_loss: bool | None = None
    scored_share: float | None = None


@dataclass(frozen=True, slots=True)
class Knot:
    """A place of the reference at which it may have moved by itself: two recordings meet, or its schedule does."""

    tokens: float
    what: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the reference's description says of its experiment: `entries` by dotted name (`model.d_model`), its loss,
    the ids of its evaluation sets by metric, and its knots, ascending."""

    entries: Mapping[str, Any] = field(default_factory=dict[str, Any])
    loss: Loss = field(default_factory=Loss)
    sets: Mapping[str, str] = field(default_factory=dict[str, str])
    knots: tuple[Knot, ...] = ()
