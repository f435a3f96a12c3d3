"""Builds a reference bundle from logs, or from runs that were imported or followed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine

from service.database.engine import reading
from service.database.models import Run
from service.detect.inputs import Series
from service.fingerprints.repository import FingerprintRepository
from service.importers.attempts import Attempt, attempts
from service.importers.canonical import TOKENS, naming
from service.importers.detect import open_log
from service.importers.rows import LogError
from service.references.bundle import load_bundle
from service.references.data_order import ExpectedRows, expected_rows, read_expected
from service.references.description import Description, Loss, Source, Stage, Task
from service.references.estimate import TRAIN, estimate, heldout_sets
from service.references.exporting import run_segments
from service.references.token_check import TokenCheck
from service.references.writing import (
    NewFolder,
    SourceSegment,
    Written,
    columns_of,
    write_description,
    write_expected,
    write_segments,
    write_series,
)
from service.series.repository import SeriesRepository

GIVEN_TOKENS = "axis/tokens"  # what the trainer itself counted, within the stage
NOT_STATED = "As the source logs it; not stated there"
Say = Callable[[str], None]
Origin = Path | Run  # a log file, or a run of this database


@dataclass(frozen=True, slots=True)
class StageWish:
    """One stage: its logs or runs in order of launch, and what they do not say themselves (None: as they say)."""

    name: str
    origins: list[Origin]
    siblings: dict[str, list[Origin]] = field(default_factory=dict[str, list[Origin]])
    tokens_per_step: int | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class About:
    """What is said about a reference that is built."""

    slug: str
    version: str
    title: str
    licence: str
    citation: str
    url: str = ""
    loss: str = NOT_STATED
    primary: str | None = None  # the held-out set that counts first
    tasks: dict[str, int] = field(default_factory=dict[str, int])  # key -> items
    retrieved: str | None = None  # a day; today, where not given


def build(
    target: Path, about: About, stages: Sequence[StageWish], chosen: Mapping[str, str], engine: Engine, say: Say
) -> None:
    """Write the bundle to the folder `target`, which must not exist. `chosen` maps names in logs to metrics.

    Stages follow each other on the token axis in the order given.

    Raises:
        LogError: a log cannot be read, no train loss is known, or the tokens per step are not.
        ValidationError: what is said about the reference does not hold together.
    """
    described: list[Stage] = []
    everything: dict[str, Written] = {}
    segments: dict[str, list[SourceSegment]] = {}
    tolerance: dict[str, Any] = {}
    conflicts: list[str] = []
    offset = 0.0
    with NewFolder(target) as folder:
        for wish in stages:
            check = TokenCheck()
            segments[wish.name] = _segments(wish.origins, chosen, check, engine)
            written = everything[wish.name] = write_series(
                folder / "series" / f"{wish.name}.parquet", segments[wish.name]
            )
            stage = _stage(wish, written, check, offset)
            described.append(stage)
            offset += float(stage.steps * stage.tokens_per_step)
            disagreement = check.disagreement(stage)
            if disagreement:
                say(disagreement)
                conflicts.append(disagreement)
            siblings = _siblings(folder, wish, stage, chosen, engine)
            for metric, entry in estimate(written.series(stage.tokens_per_step, stage.token_offset), siblings).items():
                tolerance.setdefault(metric, entry.model_dump())
        write_expected(folder, [one for wish in stages if (one := _rows_read(wish, engine)) is not None])
        write_segments(folder / "segments.csv", segments, everything)
        write_description(folder, _description(about, described, everything, tolerance, conflicts))


def add_order(folder: Path, rows: Sequence[Path], order: Path | None) -> None:
    """Put what is known of the data order into a bundle: files that `pacenote reference rows` wrote, an order.json.

    Where no file is given for a stage, the rows that its run has sent stay (see `build`).

    Raises:
        BundleError: the bundle cannot be read with them.
        OSError: a file cannot be read.
    """
    given = [read_expected(str(path), path.read_bytes()) for path in rows]
    known = {one.stage: one for one in load_bundle(folder).rows} | {one.stage: one for one in given}
    shutil.rmtree(folder / "rows", ignore_errors=True)
    (folder / "rows.bin").unlink(missing_ok=True)
    write_expected(folder, list(known.values()))
    if order is not None:
        shutil.copyfile(order, folder / "order.json")
    load_bundle(folder)


def _stage(wish: StageWish, written: Written, check: TokenCheck, offset: float) -> Stage:
    if TRAIN not in written.points:
        names = ", ".join(list(written.points)[:8]) or "nothing"
        raise LogError(f"{wish.name}: nothing is known as {TRAIN}, only {names}; say which with --map 'NAME={TRAIN}'")
    rate = wish.tokens_per_step or check.per_step()
    if rate is None:
        raise LogError(f"{wish.name}: how many tokens a step takes is not in the log: give --tokens-per-step")
    steps = wish.steps or max(written.last_step, 1)
    if steps < written.last_step:
        raise LogError(f"{wish.name}: --steps {steps:,} is less than the log's last step, {written.last_step:,}")
    return Stage(
        name=wish.name,
        steps=steps,
        tokens_per_step=rate,
        token_offset=offset,
        series=f"series/{wish.name}.parquet",
    )


def _rows_read(wish: StageWish, engine: Engine) -> ExpectedRows | None:
    """What the one run that a stage is made of has told of the rows it read; of logs, or several runs, nothing."""
    if len(wish.origins) != 1 or isinstance(wish.origins[0], Path):
        return None
    with reading(engine) as session:
        read = FingerprintRepository(session).rows(wish.origins[0].id)
    return None if read is None or not len(read.seen_steps) else expected_rows(wish.name, read)


def _siblings(
    folder: Path, wish: StageWish, stage: Stage, chosen: Mapping[str, str], engine: Engine
) -> list[dict[str, Series]]:
    found: list[dict[str, Series]] = []
    for name, origins in wish.siblings.items():
        path = folder / "siblings" / wish.name / f"{name}.parquet"
        written = write_series(path, _segments(origins, chosen, TokenCheck(), engine))
        if TRAIN not in written.points:
            raise LogError(f"sibling {name}: nothing is known as {TRAIN}")
        found.append(written.series(stage.tokens_per_step, stage.token_offset))
    return found


def _segments(
    origins: Sequence[Origin], chosen: Mapping[str, str], check: TokenCheck, engine: Engine
) -> list[SourceSegment]:
    found: list[SourceSegment] = []
    taken: set[str] = set()
    for origin in origins:
        own = _of_log(origin, chosen, check) if isinstance(origin, Path) else _of_run(origin, engine, check)
        for segment in own:
            name, number = segment.name, 2
            while name in taken:
                name, number = f"{segment.name}-{number}", number + 1
            taken.add(name)
            found.append(SourceSegment(name, segment.launched, segment.note, segment.read))
    return found


def _of_run(run: Run, engine: Engine, check: TokenCheck) -> list[SourceSegment]:
    with reading(engine) as session:
        found = run_segments(session, run.id)
        counted = SeriesRepository(session).read(run.id, [GIVEN_TOKENS], superseded=True).get(GIVEN_TOKENS)
        if counted is not None and len(counted):
            check.add(run.name, counted.steps, counted.values)

    def read(segment: SourceSegment) -> Any:
        with reading(engine) as session:
            again = next(one for one in run_segments(session, run.id) if one.name == segment.name)
            yield from again.read()

    return [SourceSegment(one.name, one.launched, one.note, partial(read, one)) for one in found]


def _of_log(path: Path, chosen: Mapping[str, str], check: TokenCheck) -> list[SourceSegment]:
    """One segment per start of the trainer in the log."""
    with open_log(path) as log:
        rows = list(log.rows)
        names = dict.fromkeys(row.metric for row in rows)
        if not rows:
            raise LogError(f"{path}: no value could be read")
        mine = {name: metric for name, metric in chosen.items() if name in names}
        known = naming(log.format, names, mine).known
        made = attempts(rows, known, in_time_order=not log.account.sorted_by_metric)
    counted = [(row.step + known[row.metric].shift, row.value) for row in rows if _counts_tokens(known, row.metric)]
    if counted:
        check.add(
            path.name, np.array([step for step, _ in counted], np.int64), np.array([tokens for _, tokens in counted])
        )
    stem = path.name.split(".")[0]
    return [_segment(stem if len(made) == 1 else f"{stem}-{n}", attempt) for n, attempt in enumerate(made, 1)]


def _counts_tokens(known: Mapping[str, Any], name: str) -> bool:
    return name in known and known[name].metric == TOKENS


def _segment(name: str, attempt: Attempt) -> SourceSegment:
    return SourceSegment(name, None, "", partial(_sorted_columns, attempt))


def _sorted_columns(attempt: Attempt) -> Any:
    return sorted(columns_of(attempt.points), key=lambda column: column[0])


def _description(
    about: About,
    stages: Sequence[Stage],
    written: Mapping[str, Written],
    tolerance: Mapping[str, Any],
    conflicts: Sequence[str],
) -> Description:
    every = {metric for found in written.values() for metric in found.points}
    heldout = heldout_sets(metric for found in written.values() for metric in found.losses)
    if about.primary is not None:
        if about.primary not in [entry["name"] for entry in heldout]:
            known = ", ".join(entry["name"] for entry in heldout) or "none"
            raise LogError(f"--primary {about.primary}: there is no such held-out set; there are {known}")
        heldout = [entry | {"primary": entry["name"] == about.primary} for entry in heldout]
    tasks = [
        Task(key=key, items=items, metric=f"downstream/{key}/accuracy", published=f"downstream/{key}/accuracy" in every)
        for key, items in about.tasks.items()
    ]
    retrieved = datetime.now(UTC).date().isoformat() if about.retrieved is None else about.retrieved
    return Description.model_validate(
        {
            "slug": about.slug,
            "version": about.version,
            "title": about.title,
            "source": Source(url=about.url, retrieved=retrieved, licence=about.licence, citation=about.citation),
            "loss": Loss(definition=about.loss),
            "stages": list(stages),
            "tasks": tasks,
            "heldout": heldout,
            "tolerance": tolerance,
            "conflicts": list(conflicts),
        }
    )
