"""What a rule may look at. Pure data: no database, no HTTP, nothing superseded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
    """One live trainer start: updates already made, when (unix seconds), number of data shards (hosts) it declared."""

    start_step: int
    started_at: float
    hosts: int


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
    """What the trainer said it would read: distinct rows in the data set, and how many passes over them are planned."""

    rows: int
    epochs: float = 1.0


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
    data: DeclaredData | None = None
    schedule: Series | None = None  # the reference's learning rate over tokens by its formula, where none was logged
    tasks: Mapping[str, int] = field(default_factory=dict[str, int])  # task key -> number of items
    same_order_declared: bool = False  # the run says that it reads the reference's batches in the reference's order
