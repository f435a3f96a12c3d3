"""Makes a reference bundle of what was pulled from W&B."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.detect.inputs import Floats, Ints
from service.importers.canonical import Target, converted, naming
from service.importers.rows import LogError
from service.importers.subtraction import subtracted
from service.importers.wandb_pull import Plan, PlannedRun, Pull, StageRequest
from service.references.archive import bundle_files
from service.references.bundle import load_bundle, unix_seconds
from service.references.description import Description, Loss, Source, Stage
from service.references.estimate import estimate, heldout_sets
from service.references.series_file import read_table
from service.references.shipped import BUNDLES
from service.references.token_check import TokenCheck
from service.references.writing import (
    NewFolder,
    SourceSegment,
    Written,
    write_description,
    write_segments,
    write_series,
)

PULLS = Path(__file__).parent / "pulls"
TOKENS = "tokens"  # what a trainer's own count of tokens is mapped to; it is kept under its own name
UNSTATED = "No licence text came with the numbers; name the source wherever they are shown"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class KnownPull:
    """A published run whose place is known: the W&B project, its stages, and the bundle that describes it."""

    entity: str
    project: str
    stages: list[StageRequest]
    bundle: Path


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is said about a pulled project, None where nothing is; `names` maps its names to metrics."""

    slug: str
    version: str | None = None
    title: str | None = None
    licence: str | None = None
    tokens_per_step: int | None = None
    names: Mapping[str, str] = field(default_factory=dict[str, str])


def known_pull(slug: str) -> KnownPull | None:
    """The published run of that name, None if its place is not known."""
    path = PULLS / f"{slug}.toml"
    if path.parent != PULLS or not path.exists():
        return None
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    stages = [StageRequest(s["name"], s.get("group"), tuple(s.get("runs", ()))) for s in content["stages"]]
    return KnownPull(content["entity"], content["project"], stages, BUNDLES / content["bundle"])


def make_bundle(
    pull: Pull, plan: Plan, wishes: Wishes, target: Path, source_url: str, base: Path | None, say: Say
) -> None:
    """Write the bundle to the folder `target`, which must not exist. `base` is a bundle that says all but the numbers.

    Raises:
        LogError: nothing that was pulled has a known meaning, or the tokens per step are not known.
    """
    known = load_bundle(base).description if base is not None else None
    launches = _known_launches(base)
    with NewFolder(target) as folder:
        stages: dict[str, list[SourceSegment]] = {}
        written: dict[str, Written] = {}
        checks: dict[str, TokenCheck] = {}
        for name, runs in plan.stages.items():
            check = checks[name] = TokenCheck()
            ordered = _in_order(runs, launches.get(name, {}), say)
            stages[name] = [_segment(pull, name, run, launched, check, wishes.names) for run, launched in ordered]
            written[name] = write_series(folder / "series" / f"{name}.parquet", stages[name])
            _report_counts(pull, name, runs, say)
        description = _description(plan, wishes, written, checks, source_url, known, say)
        write_segments(folder / "segments.csv", stages, written)
        write_description(folder, description)


def _segment(
    pull: Pull,
    stage: str,
    run: PlannedRun,
    launched: float | None,
    check: TokenCheck,
    chosen: Mapping[str, str],
) -> SourceSegment:
    def read() -> Iterable[tuple[str, Ints, Floats]]:
        targets = _targets(list(pull.names(stage, run)) if run.last_step is not None else [], chosen)
        for name, steps, values in pull.columns(stage, run, sorted(targets, key=lambda name: targets[name].metric)):
            target = targets[name]
            if target.metric == TOKENS:
                check.add(run.id, steps + target.shift, values)
                target = Target(name, target.shift)
            if target.minus:
                beside = {term: (at, found) for term, at, found in pull.columns(stage, run, target.minus)}
                yield name, steps, values
                steps, values = subtracted((steps, values), beside, target)
            elif target.converts:
                values = converted(values, target)
            yield target.metric, steps + target.shift, values

    return SourceSegment(run.id, launched, "" if run.name == run.id else run.name, read)


def _targets(found: list[str], chosen: Mapping[str, str]) -> dict[str, Target]:
    """Name at W&B -> what it stands for: itself, where nothing is known of it."""
    mine = {name: metric for name, metric in chosen.items() if name in found}
    known: Mapping[str, Target] = naming("wandb", found, mine).known
    return {name: known.get(name, Target(name)) for name in found}


def _in_order(
    runs: list[PlannedRun], launches: Mapping[str, float], say: Say
) -> Iterator[tuple[PlannedRun, float | None]]:
    """Runs in order of launch with its time: as the bundle of the same name knows it, else by the runs' names, else the
    order in which W&B lists them."""
    times = [launches.get(run.id, run.launched) for run in runs]
    if any(time is None for time in times):
        if len(runs) > 1:
            say("not every run's name holds its launch time: segments are in the order that was asked for or listed")
        return iter([(run, None) for run in runs])
    return iter(sorted(zip(runs, times, strict=True), key=lambda pair: pair[1] or 0.0))


def _known_launches(base: Path | None) -> dict[str, dict[str, float]]:
    """Stage -> segment -> launch time, as a bundle's segments.csv knows them; empty launches too."""
    found: dict[str, dict[str, float]] = {}
    content = bundle_files(base).get("segments.csv") if base is not None else None
    for where, row in read_table("segments.csv", content, ("stage", "segment", "launched")) if content else ():
        launched = unix_seconds(where, row["launched"])
        if launched is not None:
            found.setdefault(row["stage"], {})[row["segment"]] = launched
    return found


def _report_counts(pull: Pull, stage: str, runs: list[PlannedRun], say: Say) -> None:
    """Say where what was pulled is not what W&B counts."""
    for run in runs:
        counts = pull.counts(stage, run)
        if counts.rows + counts.refused < run.lines:
            say(f"{stage} {run.id}: {counts.rows:,} rows came of {run.lines:,} that W&B counts")
        if counts.refused:
            say(f"{stage} {run.id}: {counts.refused:,} rows have no whole step and are left out")


def _description(
    plan: Plan,
    wishes: Wishes,
    written: Mapping[str, Written],
    checks: Mapping[str, TokenCheck],
    source_url: str,
    known: Description | None,
    say: Say,
) -> Description:
    if not any("train/ce_loss" in found.points for found in written.values()):
        names = list(next(iter(written.values())).points)[:8]
        raise LogError(f"no metric is known as a train loss; the source has {', '.join(names)}")
    content: dict[str, Any] = _known(known) if known is not None else _unknown(wishes, written, checks, source_url)
    content |= {"slug": wishes.slug, "version": wishes.version or f"full-{plan.retrieved}"}
    content["source"] |= {"url": source_url, "retrieved": plan.retrieved}
    for name in ("title", "licence"):
        if getattr(wishes, name) is not None:
            (content if name == "title" else content["source"])[name] = getattr(wishes, name)
    for stage in content["stages"]:
        found = written.get(stage["name"])
        stage["series"] = f"series/{stage['name']}.parquet" if found is not None else None
    stages = [Stage(**stage) for stage in content["stages"]]
    every = {metric for found in written.values() for metric in found.points}
    for task in content.get("tasks", []):
        task["published"] = task["metric"] in every
    conflicts = [
        text
        for stage in stages
        if stage.name in checks and (text := checks[stage.name].disagreement(stage)) is not None
    ]
    for conflict in conflicts:
        say(conflict)
    content["conflicts"] = [*content.get("conflicts", []), *conflicts]
    first = next(stage for stage in stages if stage.name in written)
    content["tolerance"] = estimate(written[first.name].series(first.tokens_per_step, first.token_offset))
    return Description.model_validate(content)


def _known(known: Description) -> dict[str, Any]:
    return known.model_dump(exclude={"version", "tolerance"})


def _unknown(
    wishes: Wishes, written: Mapping[str, Written], checks: Mapping[str, TokenCheck], source_url: str
) -> dict[str, Any]:
    stages: list[dict[str, Any]] = []
    offset = 0.0
    for name, found in written.items():
        rate = wishes.tokens_per_step or checks[name].per_step()
        if rate is None:
            raise LogError(f"how many tokens a step of {name} takes is not in the source: give --tokens-per-step")
        steps = max(found.last_step, 1)
        stages.append({"name": name, "steps": steps, "tokens_per_step": rate, "token_offset": offset})
        offset += float(steps * rate)
    project = "/".join(source_url.rsplit("/", 2)[-2:])
    source = Source(licence=UNSTATED, citation=f"Weights & Biases project {project}")
    return {
        "title": project,
        "source": source.model_dump(),
        "stages": stages,
        "loss": Loss(definition="As the source logs it; not stated there").model_dump(),
        "heldout": heldout_sets(metric for found in written.values() for metric in found.losses),
    }
