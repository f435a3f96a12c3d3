"""What the columns of a table mean: which counts steps, which names runs, which are metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

STEP_COLUMNS = (
    "step",
    "_step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "iteration",
    "iter",
    "steps",
    "update",
    "num_updates",
)
TIME_COLUMNS = ("_timestamp", "timestamp", "time", "wall_time", "wall time", "created_at")
RUN_COLUMNS = ("run_name", "run", "run_id", "run_uuid")
LAUNCH_COLUMNS = ("segment", "launch", "attempt")
NO_METRICS = ("id", "run_id", "run_uuid", "log_id", "space_id")
RANGES = ("__MIN", "__MAX")


@dataclass(frozen=True, slots=True)
class Metric:
    """A column of values: where it stands, which run's it is ("": the log's only one), and its name."""

    at: int
    run: str
    name: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of the columns. `long` are the places of (metric, value) in a table of one value a row."""

    names: list[str]
    step: int
    metrics: list[Metric]
    time: int | None = None
    run: int | None = None
    launch: int | None = None
    epoch: int | None = None
    long: tuple[int, int] | None = None
    ranges: int = 0


def step_column(names: Sequence[str]) -> int | None:
    """Where the steps stand; where only epochs are counted, those."""
    lower = [name.strip().lower() for name in names]
    found = next((lower.index(name) for name in STEP_COLUMNS if name in lower), None)
    if found is None:
        found = next((at for at, name in enumerate(lower) if name.endswith((" - _step", "/global_step"))), None)
    return lower.index("epoch") if found is None and "epoch" in lower else found


def layout_of(names: Sequence[str]) -> Layout | None:
    """The layout of a table with these column names, None if nothing counts steps. Doubled names get numbers."""
    step = step_column(names)
    if step is None:
        return None
    unique = _unique([name.strip() for name in names])
    lower = [name.lower() for name in unique]
    time = _first(lower, TIME_COLUMNS)
    epoch = lower.index("epoch") if "epoch" in lower and lower.index("epoch") != step else None
    run, launch = _first(lower, RUN_COLUMNS), _first(lower, LAUNCH_COLUMNS)
    if "metric" in lower and "value" in lower:
        long = (lower.index("metric"), lower.index("value"))
        return Layout(unique, step, [], time, run, launch, None, long)
    charted = {name[: -len(RANGES[0])] for name in unique if name.endswith(RANGES)}
    taken = {step, time, run, launch}
    metrics: list[Metric] = []
    for at, name in enumerate(unique):
        if at in taken or name.lower() in NO_METRICS or name.endswith((*RANGES, " - _step")):
            continue
        owner, dash, metric = name.rpartition(" - ")
        of_run = bool(dash) and (name in charted or bool(charted))
        metrics.append(Metric(at, owner if of_run else "", metric if of_run else name))
    ranges = sum(name.endswith(RANGES) for name in unique)
    return Layout(unique, step, metrics, time, run, launch, epoch, None, ranges)


def numbered(count: int) -> Layout:
    """The layout of a table without column names: the first column counts steps."""
    names = [f"column {place}" for place in range(1, count + 1)]
    return Layout(names, 0, [Metric(at, "", name) for at, name in enumerate(names) if at])


def _first(names: Sequence[str], known: Sequence[str]) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def _unique(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    made: list[str] = []
    for place, name in enumerate(names, 1):
        name = name or f"column {place}"
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return made
