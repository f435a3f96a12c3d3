"""The first pass over a log: what it holds, where it goes back, what its values look like. Nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from service.importers.blocks import Block, Floats, Ints

SAMPLE = 1024  # values of each metric that are kept, evenly over its rows
MOST_REWINDS = 10_000  # of one metric; a log that goes back more often is not in order of time
KEPT_POINTS = 2_000_000  # so many values are kept from the first pass, so that the second need not read again


@dataclass(slots=True)
class MetricFound:
    """One metric of one launch. `rewinds` are rows (before, at) between which its step falls."""

    count: int = 0
    first_step: int = 2**62
    last_step: int = -1
    minimum: float = float("inf")
    maximum: float = float("-inf")
    non_finite: int = 0
    repeats: int = 0  # a step that comes again at once
    sample_steps: list[int] = field(default_factory=list[int])
    sample: list[float] = field(default_factory=list[float])
    rewinds: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    unordered: bool = False
    _last: tuple[int, int] | None = None  # row and step
    _stride: int = 1

    def add(self, rows: Ints, steps: Ints, values: Floats) -> None:
        """Take the next values (m,), which stand in `rows` (m,) of the launch."""
        finite = values[np.isfinite(values)]
        first = -self.count % self._stride
        self.sample_steps += steps[first :: self._stride].tolist()
        self.sample += values[first :: self._stride].tolist()
        while len(self.sample) > SAMPLE:
            self.sample_steps, self.sample = self.sample_steps[::2], self.sample[::2]
            self._stride *= 2
        self.count += len(values)
        self.non_finite += len(values) - len(finite)
        self.first_step = min(self.first_step, int(steps.min()))
        self.last_step = max(self.last_step, int(steps.max()))
        if len(finite):
            self.minimum, self.maximum = min(self.minimum, float(finite.min())), max(self.maximum, float(finite.max()))
        if self._last is not None:
            rows, steps = np.insert(rows, 0, self._last[0]), np.insert(steps, 0, self._last[1])
        moved = np.diff(steps)
        self.repeats += int((moved == 0).sum())
        back = np.flatnonzero(moved < 0)
        if len(back) + len(self.rewinds) > MOST_REWINDS:
            self.unordered = True
        elif len(back):
            self.rewinds += list(zip(rows[back].tolist(), rows[back + 1].tolist(), strict=True))
        self._last = int(rows[-1]), int(steps[-1])


@dataclass(slots=True)
class LaunchFound:
    """One start, or one file, of a run. `rows` counts its rows; `first_time` is in unix seconds."""

    rows: int = 0
    in_time_order: bool = True
    first_time: float | None = None
    metrics: dict[str, MetricFound] = field(default_factory=dict[str, MetricFound])

    def cuts(self, names: Iterable[str]) -> list[int]:
        """Rows at which the log went back to an earlier step, by the metrics of these names.

        Metrics that fall one after another because of one restart make one cut: each is compared with its values
        since the last cut alone.
        """
        found = [metric for name, metric in self.metrics.items() if name in set(names)]
        if not self.in_time_order or any(metric.unordered for metric in found):
            return []
        made: list[int] = []
        last = 0
        for at, before in sorted((at, before) for metric in found for before, at in metric.rewinds):
            if before >= last:
                made.append(at)
                last = at
        return made


@dataclass(slots=True)
class RunFound:
    """One run of the log, by launch in order of appearance."""

    name: str
    launches: dict[str, LaunchFound] = field(default_factory=dict[str, LaunchFound])

    @property
    def metrics(self) -> dict[str, list[MetricFound]]:
        """Metric -> what each launch holds of it."""
        found: dict[str, list[MetricFound]] = {}
        for launch in self.launches.values():
            for name, metric in launch.metrics.items():
                found.setdefault(name, []).append(metric)
        return found

    @property
    def in_order(self) -> bool:
        """Whether no metric's step ever falls."""
        metrics = [metric for found in self.metrics.values() for metric in found]
        return not any(metric.rewinds or metric.unordered for metric in metrics)

    @property
    def points(self) -> int:
        """How many values it has."""
        return sum(metric.count for launch in self.launches.values() for metric in launch.metrics.values())


@dataclass(slots=True)
class Survey:
    """What one pass found. `kept` holds the blocks again where there are few enough of them."""

    runs: dict[str, RunFound] = field(default_factory=dict[str, RunFound])
    points: int = 0
    kept: list[Block] | None = field(default_factory=list[Block])

    def add(self, block: Block) -> None:
        """Take the next block."""
        self.points += block.points
        if self.kept is not None:
            self.kept.append(block)
            if self.points > KEPT_POINTS:
                self.kept = None
        run = self.runs.setdefault(block.run, RunFound(block.run))
        launch = run.launches.setdefault(block.launch, LaunchFound())
        launch.in_time_order = launch.in_time_order and block.in_time_order
        if launch.first_time is None and block.times is not None and not np.isnan(block.times).all():
            launch.first_time = float(np.nanmin(block.times))
        for name, (values, rows) in block.columns.items():
            if len(values):
                at = np.arange(len(block)) if rows is None else rows
                launch.metrics.setdefault(name, MetricFound()).add(at + launch.rows, block.steps[at], values)
        launch.rows += len(block)


def survey(read: Callable[[], Iterator[Block]]) -> Survey:
    """Read a log once."""
    found = Survey()
    for block in read():
        found.add(block)
    return found
