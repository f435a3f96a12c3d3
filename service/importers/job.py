"""One import from the first look to the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Engine

from service.importers.blocks import Block
from service.importers.folders import Group
from service.importers.plan import Plan, RunPlan, plan
from service.importers.rows import Account, LogError
from service.importers.storing import Goal, Outcome, Storer
from service.importers.survey import Survey
from service.importers.text import Progress, no_progress
from service.importers.tokens_said import Said, tokens_said
from service.importers.units import UNITS

STORED_BEFORE = "stored before, by an earlier import of the same content"


@dataclass(frozen=True, slots=True)
class Options:
    """How a log is read and where it goes."""

    project: str
    role: str = "run"
    name: str | None = None
    stage: str = "stage1"
    reference: str | None = None
    tokens_per_step: int | None = None
    mapping: Mapping[str, str] = field(default_factory=dict[str, str])
    run: str | None = None  # of the log's runs, the one to take
    accumulation: int = 1  # microbatches of one step, for trainers that sum over them


@dataclass(slots=True)
class Preview:
    """What a log holds and what would be stored."""

    group: Group
    account: Account
    survey: Survey
    plan: Plan
    read: int  # values found, and what was refused while reading
    chosen: str | None

    def version(self, options: Options) -> str:
        """Tells this content, read so, from every other."""
        return self.group.digest(_spelled(options)).hex()[:12]

    def tokens_said(self) -> dict[str, Said]:
        """Run in the log -> how many tokens a step takes, where the log says it."""
        said = {name: tokens_said(run.found.metrics, run.known, self.account) for name, run in self.plan.runs.items()}
        return {name: one for name, one in said.items() if one is not None}

    def run_name(self, run_in_log: str, options: Options, groups: int) -> str:
        """What a run of the log is called here."""
        own = run_in_log or self.group.name
        if options.name is None:
            return own
        return options.name if len(self.plan.runs) == 1 and groups == 1 else f"{options.name}/{own}"


@dataclass(slots=True)
class Report:
    """What became of every row: `read` = `stored` + `superseded` + all of `refused`. `runs` are by name."""

    read: int
    stored: int
    superseded: int
    copies: int
    refused: Counter[str]
    places: dict[str, str]
    runs: dict[str, tuple[Goal, Outcome]]
    conversions: list[str] = field(default_factory=list[str])  # sentences: what is stored otherwise than it was logged


def look(group: Group, options: Options, progress: Progress = no_progress) -> Preview:
    """Read a log once.

    Raises:
        LogError: it cannot be read, holds no value, or its names are ambiguous.
    """
    account, found = Account(), Survey()
    for block in _chosen(group.read(account, progress, options.tokens_per_step), options.run):
        found.add(block)
    if not found.points:
        reasons = [_reasons(account)] if account.refused else account.notes
        why = f" ({'; '.join(reasons)[:500]})" if reasons else ""
        named = f"no run {options.run!r} with values" if options.run else "no value could be read"
        raise LogError(f"{group.place}: {named}{why}")
    read = found.points + account.refused.total()
    return Preview(
        group,
        account,
        found,
        plan(found, group.format.name, options.mapping, account, options.accumulation),
        read,
        options.run,
    )


def store(
    engine: Engine,
    preview: Preview,
    options: Options,
    groups: int = 1,
    progress: Progress = no_progress,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Store what a preview shows; the same content again stores nothing.

    Raises:
        LogError: the log has changed or cannot be read any more.
    """
    group, runs = preview.group, preview.plan.runs
    digest = group.digest(_spelled(options))
    goals = {
        name: Goal(
            options.project,
            preview.run_name(name, options, groups)[:256],
            options.stage,
            options.role,
            options.reference if options.role == "run" else None,
            options.tokens_per_step,
            digest,
            group.origin or group.paths[0].name,
            group.format.name,
        )
        for name in runs
    }
    storer = Storer(engine, goals, runs)
    kept = preview.survey.kept
    blocks = group.read(Account(), progress, options.tokens_per_step) if kept is None else iter(kept)
    outcomes = storer.store(_same(_chosen(blocks, preview.chosen), runs, group), say)
    refused = Counter(preview.account.refused)
    for name, outcome in outcomes.items():
        if outcome.already:
            refused[STORED_BEFORE] += kept_points(runs[name])
    return Report(
        preview.read,
        sum(outcome.stored for outcome in outcomes.values()),
        sum(outcome.superseded for outcome in outcomes.values()),
        sum(outcome.copies for outcome in outcomes.values()),
        refused,
        dict(preview.account.places),
        {goal.name: (goal, outcomes[name]) for name, goal in goals.items()},
        conversions(runs, outcomes),
    )


def conversions(runs: Mapping[str, RunPlan], outcomes: Mapping[str, Outcome]) -> list[str]:
    """Which values are stored otherwise than they were logged, how and why, each in one sentence, once."""
    said: dict[str, int] = {}
    for name, run in runs.items():
        for made in run.conversions:
            why = f" ({made['why']})" if made["why"] and made["why"] not in UNITS else ""
            sentence = f"{made['metric']} = {made['formula']}{why}"
            said[sentence] = said.get(sentence, 0) + (outcomes[name].untold[made["from"]] if name in outcomes else 0)
    return [
        sentence + (f"; {count:,} values lack what they contain and are kept as they were alone" if count else "")
        for sentence, count in said.items()
    ]


def kept_points(run: RunPlan) -> int:
    """How many of a run's values are to be stored."""
    return sum(m.count for name, found in run.found.metrics.items() if name not in run.refused for m in found)


def _chosen(blocks: Iterator[Block], run: str | None) -> Iterator[Block]:
    return blocks if run is None else (block for block in blocks if block.run == run)


def _same(blocks: Iterator[Block], runs: Mapping[str, RunPlan], group: Group) -> Iterator[Block]:
    for block in blocks:
        if block.run not in runs or block.launch not in runs[block.run].cuts:
            raise LogError(f"{group.place}: it changed while it was read; import it again, or use `pacenote follow`")
        yield block


def _spelled(options: Options) -> list[str]:
    mapped = [f"{name}={metric}" for name, metric in sorted(options.mapping.items())]
    summed = [f"accumulation {options.accumulation}"] if options.accumulation > 1 else []
    return [*mapped, f"tokens {options.tokens_per_step}", f"run {options.run}", *summed]


def _reasons(account: Account) -> str:
    return ", ".join(f"{reason}: {count:,}" for reason, count in account.refused.most_common(3))
