"""What will be stored: which runs, under which names, in which segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from service.importers.blocks import Block
from service.importers.canonical import Naming, Target, check_chosen, naming
from service.importers.rows import Account
from service.importers.survey import RunFound, Survey
from service.importers.units import settle

MOST_SEGMENTS = 1000
LONGEST_NAME = 256  # bytes
MOST_METRICS = 2000  # of one run
NAME_TOO_LONG = f"the metric's name is longer than {LONGEST_NAME} bytes"
MEANT_BY_OTHER = "another name of the log means this metric"
TOO_MANY = f"the run has more than {MOST_METRICS} metrics"


@dataclass(slots=True)
class RunPlan:
    """One run: name -> target of its known metrics, and per launch the rows at which a new segment begins."""

    found: RunFound
    known: dict[str, Target]
    notes: list[str]
    cuts: dict[str, list[int]]
    refused: dict[str, str] = field(default_factory=dict[str, str])  # name -> reason

    @property
    def raw(self) -> list[str]:
        """Names that are stored as they are."""
        return [name for name in self.found.metrics if name not in self.known and name not in self.refused]

    @property
    def subtracted(self) -> dict[str, Target]:
        """The log's names of losses that contain what stands beside them."""
        return {name: target for name, target in self.known.items() if target.minus and name not in self.refused}

    @property
    def conversions(self) -> list[dict[str, str]]:
        """What is stored otherwise than the log has it, as a segment of the hook declares it (docs/wire.md)."""
        return [
            {"metric": target.metric, "from": name, "formula": target.formula(name), "why": target.why or target.unit}
            for name, target in self.known.items()
            if target.converts
        ]

    @property
    def segments(self) -> int:
        """How many segments it will have."""
        return sum(len(cuts) + 1 for cuts in self.cuts.values())

    def last_step(self) -> int:
        """The last step of its known metrics, else of all."""
        metrics = self.found.metrics
        chosen = [name for name in metrics if name in self.known] or list(metrics)
        return max(m.last_step + (self.known[n].shift if n in self.known else 0) for n in chosen for m in metrics[n])


@dataclass(slots=True)
class Plan:
    """The runs of a log by their name in it."""

    runs: dict[str, RunPlan]


def plan(found: Survey, format_name: str, chosen: Mapping[str, str], account: Account, accumulation: int = 1) -> Plan:
    """Decide what each name means and where segments begin.

    Raises:
        LogError: a chosen name does not occur, or two names mean the same.
    """
    every = dict.fromkeys(name for run in found.runs.values() for name in run.metrics)
    check_chosen(every, chosen)
    runs: dict[str, RunPlan] = {}
    for name, run in found.runs.items():  # each for itself: what one calls train/loss may be loss in another
        own = {mapped: metric for mapped, metric in chosen.items() if mapped in run.metrics}
        runs[name] = _plan_run(run, naming(format_name, run.metrics, own, accumulation), own)
    for run in runs.values():
        metrics = run.found.metrics
        for name, reason in run.refused.items():
            account.refuse(reason, name[:40], sum(metric.count for metric in metrics[name]))
    return Plan(runs)


def _plan_run(run: RunFound, names: Naming, chosen: Mapping[str, str]) -> RunPlan:
    settled = settle(run, names.known, chosen)
    notes = list(settled.notes)
    refused = {name: NAME_TOO_LONG for name in run.metrics if len(name.encode()) > LONGEST_NAME}
    targets = {target.metric for name, target in settled.known.items() if name != target.metric}
    refused |= {name: MEANT_BY_OTHER for name in run.metrics if name in targets and name not in settled.known}
    kept = [name for name in run.metrics if name not in refused]
    ordered = [*(name for name in kept if name in settled.known), *(name for name in kept if name not in settled.known)]
    refused |= dict.fromkeys(ordered[MOST_METRICS:], TOO_MANY)
    judged = [name for name in run.metrics if name in settled.known] or list(run.metrics)
    no_cuts: list[int] = []
    cuts = {name: launch.cuts(judged) for name, launch in run.launches.items()}
    if sum(len(cut) for cut in cuts.values()) > MOST_SEGMENTS:
        notes.append(f"steps fall {sum(len(cut) for cut in cuts.values()):,} times: the rows are not in order of time")
        cuts = dict.fromkeys(cuts, no_cuts)
    return RunPlan(run, settled.known, notes, cuts, refused)


@dataclass(slots=True)
class Cutter:
    """Second pass: gives each block to its segment, (launch, number within the launch)."""

    runs: Mapping[str, RunPlan]
    _rows: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    def pieces(self, block: Block) -> Iterator[tuple[int, Block]]:
        """The block's parts with the number of their segment within the launch."""
        key = (block.run, block.launch)
        first = self._rows.get(key, 0)
        last = self._rows[key] = first + len(block)
        cuts = self.runs[block.run].cuts[block.launch]
        bounds = [first, *(cut for cut in cuts if first < cut < last), last]
        for start, end in pairwise(bounds):
            yield sum(cut <= start for cut in cuts), block.part(start - first, end - first)
