"""What an endpoint hands to the committer: checked, decoded, ready to be written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.errors import FieldError
from service.ingest.wire import SegmentBody

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Batch:
    """`values` are float64 (axes and metrics, steps); `present` their packed bits, None if nothing is missing.

    `axes` are the numbers of the axes, the times first; `names` those of the metrics, ascending, each with a value at
    least. `points` counts the metrics' values. The run may come to have `most_metrics`.
    """

    names: tuple[str, ...]
    axes: tuple[int, ...]
    steps: Ints
    values: bytes
    present: bytes | None
    points: int
    eval_sets: dict[str, str]
    weights: UUID | None
    most_metrics: int
    clock_offset: float  # seconds that the service's clock is ahead of the sender's

    def only(self, names: Collection[str]) -> Batch:
        """The batch without all other metrics."""
        n, first = len(self.steps), len(self.axes)
        rows = [*range(first), *(row for row, name in enumerate(self.names, first) if name in names)]
        values = np.frombuffer(self.values).reshape(-1, n)[rows]
        points, present = (len(rows) - first) * n, self.present
        if present is not None:
            here = np.unpackbits(np.frombuffer(present, np.uint8), count=len(self.values) // 8).reshape(-1, n)[rows]
            points, present = int(here[first:].sum()), np.packbits(here).tobytes()
        kept = tuple(name for name in self.names if name in names)
        eval_sets = {name: eval_set for name, eval_set in self.eval_sets.items() if name in names}
        return replace(self, names=kept, values=values.tobytes(), present=present, points=points, eval_sets=eval_sets)

    def axis(self, number: int) -> Floats | None:
        """One axis (steps,), NaN where it is missing; None if it was not sent."""
        if number not in self.axes:
            return None
        row, n = self.axes.index(number), len(self.steps)
        values = np.frombuffer(self.values, np.float64, n, row * n * 8)
        if self.present is None:
            return values
        present = np.unpackbits(np.frombuffer(self.present, np.uint8), count=(row + 1) * n)[row * n :]
        return np.where(present, values, np.nan)


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """`steps` int64 (n,) and `hashes` uint64 (n,), parallel; `seen` int64 (m, 3): from step, to step, rows per step.

    Of a held-out set: its name, how many of its windows are looked for, and `counts` int64 (n,): how many the row held.
    """

    kind: str
    host: int
    sample: int
    steps: Ints
    hashes: NDArray[np.uint64]
    seen: Ints
    set_name: str | None = None
    windows: int | None = None
    counts: Ints | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """Per-item results of a task: `correct` holds `n` bits, lowest first."""

    step: int
    task: str
    n: int
    correct: bytes


@dataclass(frozen=True, slots=True)
class Event:
    """Something a trainer said; `at` by the service's clock."""

    step: int
    kind: str
    value: Any
    at: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The segment's process ended; `at` by the service's clock."""

    at: float


@dataclass(frozen=True, slots=True)
class Post:
    """One POST to a segment. `digest` is of its content: a retry has the same one, whenever it is sent."""

    segment: UUID
    process: int
    seq: int
    kind: str
    digest: bytes
    received_at: float
    accepted: int
    content: Batch | Fingerprints | Items | Event | Finish

    @property
    def key(self) -> tuple[UUID, int, str, int]:
        """What makes a retry harmless."""
        return (self.segment, self.process, self.kind, self.seq)


@dataclass(frozen=True, slots=True)
class Put:
    """One PUT of a segment; `started_at` by the service's clock."""

    segment: UUID
    body: SegmentBody
    digest: bytes
    started_at: float
    received_at: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer 202. `refused` are metrics that were left out of a batch, as fields with the reason."""

    accepted: int
    duplicate: bool
    refused: tuple[FieldError, ...] = ()

    def to_json(self) -> bytes:
        """The answer's body; `refused` is in it only where something was."""
        fields = {"accepted": self.accepted, "duplicate": self.duplicate}
        return msgspec.json.encode(fields | {"refused": self.refused} if self.refused else fields)
