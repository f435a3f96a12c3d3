"""`pacenote import`: brings any log into the database, as a run or as a reference."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from service.cli.opening import database_trouble, open_database, read_settings
from service.cli.output import JUDGED_NOT, fail, interactive, warn

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from service.importers.folders import Found, Group
    from service.importers.job import Options, Preview, Report
    from service.settings import Settings

EXAMPLE = "Example: pacenote import metrics.csv --reference olmo3-7b --map 'loss=train/ce_loss' --judge"


def import_(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A log, or a folder of logs.")],
    as_: Annotated[Literal["reference", "run"], typer.Option("--as", help="What it becomes.")] = "run",
    project: Annotated[str | None, typer.Option(help="By default the reference's name, else `imported`.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the run or reference; by default the log's own.")] = None,
    stage: Annotated[str | None, typer.Option(help="By default the reference's first, else stage1.")] = None,
    reference: Annotated[str | None, typer.Option(help="Reference to compare the run with.")] = None,
    tokens_per_step: Annotated[
        int | None, typer.Option(min=1, help="By default that of the reference's stage.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="Of several runs in the log, the one to take.")] = None,
    format_: Annotated[str | None, typer.Option("--format", help="Goes before what is found by content.")] = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", help="NAME=METRIC: what a name in the log means. May be repeated.")
    ] = None,
    source: Annotated[str, typer.Option(help="Of a reference: where the numbers were published.")] = "",
    licence: Annotated[str, typer.Option(help="Of a reference: the numbers' licence.")] = "not stated",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what was found and how names map; store nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before storing.")] = False,
    judge: Annotated[bool, typer.Option("--judge", help="Judge the runs here, and print what comes out.")] = False,
    database_url: Annotated[str | None, typer.Option(help="By default PACENOTE_DATABASE_URL.")] = None,
) -> None:
    """Store a log of any known format; the same log again stores nothing.

    Exit 0: stored; 1: with --judge, a judgement says it is not the published run; 2: it cannot be imported.
    """
    from service.errors import ConflictError
    from service.importers.folders import find
    from service.importers.rows import LogError

    settings = read_settings(database_url=database_url)
    if judge and (reference is None or as_ == "reference"):
        fail("--judge compares a run with a reference: name one with --reference.")
    try:
        found = find(path, format_)
        _print_refused(found)
        engine = None if dry_run and reference is None else open_database(settings.database_url)
        options = _options(engine, as_, project, name, stage, reference, tokens_per_step, run, mapping)
        previews = [_look(group, options) for group in found.groups]
        if dry_run:
            return
        assert engine is not None
        if not yes and interactive() and not typer.confirm("Import this?", default=True, err=True):
            raise typer.Abort
        reports = _store(engine, settings, previews, options, as_, source, licence)
        if judge and _judge(engine, settings, reports):
            raise typer.Exit(JUDGED_NOT)
    except (LogError, ConflictError) as error:
        fail(error.detail if isinstance(error, ConflictError) else str(error))


def _options(
    engine: Engine | None,
    as_: Literal["reference", "run"],
    project: str | None,
    name: str | None,
    stage: str | None,
    reference: str | None,
    tokens_per_step: int | None,
    run: str | None,
    mapping: list[str] | None,
) -> Options:
    from service.cli.replay import chosen_names
    from service.importers.job import Options

    if as_ == "reference":
        if reference is not None:
            fail("--reference names what a run is compared with; a reference is compared with nothing.")
        if tokens_per_step is None:
            fail("A reference is placed by tokens: say how many a step has with --tokens-per-step.")
    if reference is not None and engine is not None:
        stage, tokens_per_step = _stage_of(engine, reference, stage, tokens_per_step)
    return Options(
        project=project or reference or (name if as_ == "reference" and name else "imported"),
        role=as_,
        name=name,
        stage=stage or "stage1",
        reference=reference,
        tokens_per_step=tokens_per_step,
        mapping=chosen_names(mapping or []),
        run=run,
    )


def _stage_of(engine: Engine, slug: str, stage: str | None, tokens_per_step: int | None) -> tuple[str, int]:
    """The stage's name and tokens per step, as the reference says where nothing else is given."""
    from service.database.engine import reading
    from service.references.describe import description
    from service.references.repository import ReferenceRepository
    from service.references.shipped import install_shipped

    install_shipped(engine)
    with reading(engine) as session:
        repository = ReferenceRepository(session)
        found = repository.current(slug)
        if found is None:
            known = ", ".join(reference.slug for reference in repository.all_current())
            fail(f"There is no reference {slug}; there are {known}.")
        content = description(found)
        chosen = content.stages[0] if stage is None else content.stage(stage)
        if chosen is None:
            fail(f"{slug} has no stage {stage}; it has {', '.join(one.name for one in content.stages)}.")
        return chosen.name, tokens_per_step or chosen.tokens_per_step


def _print_refused(found: Found) -> None:
    for file, reason in found.refused[:12]:
        warn(f"{file}: {reason}")
    if len(found.refused) > 12:
        warn(f"and {len(found.refused) - 12:,} more files that cannot be imported")


def _look(group: Group, options: Options) -> Preview:
    from service.cli.import_report import print_preview
    from service.importers.job import look

    with _bar("reading", group) as progress:
        preview = look(group, options, progress)
    print_preview(preview)
    return preview


def _store(
    engine: Engine,
    settings: Settings,
    previews: list[Preview],
    options: Options,
    as_: str,
    source: str,
    licence: str,
) -> list[Report]:
    from dataclasses import replace

    from service.cli.import_report import print_report
    from service.database.engine import writing
    from service.importers.job import store
    from service.importers.published import NOT_STATED, Publication, publish, run_name

    if as_ == "reference" and (len(previews) > 1 or len(previews[0].plan.runs) > 1):
        names = [name for preview in previews for name in preview.plan.runs]
        fail(
            f"A reference is one run; the log holds {len(names)}. Take one with --run, for example --run '{names[0]}'."
        )
    reports: list[Report] = []
    for preview in previews:
        publication = None
        own = options
        if as_ == "reference":
            slug = _slug(options.name or next(iter(preview.plan.runs)) or preview.group.name)
            version = preview.version(options)
            tokens = options.tokens_per_step or 0
            publication = Publication(slug, version, options.stage, tokens, source, licence, source or NOT_STATED)
            own = replace(options, name=run_name(slug, version), project=options.project if options.name else slug)
        with database_trouble(settings.database_url), _bar("storing", preview.group) as progress:
            report = store(engine, preview, own, len(previews), progress)
        if publication is not None:
            with writing(engine) as session:
                made = publish(session, report, publication)
                typer.echo(f"Reference {made.slug}, version {made.version}")
        print_report(report)
        reports.append(report)
    return reports


def _judge(engine: Engine, settings: Settings, reports: list[Report]) -> bool:
    """Judge every run; whether a judgement says yes."""
    from service.broker import Broker
    from service.cli.verdict import print_verdict
    from service.database.engine import reading
    from service.judgements.repository import JudgementRepository
    from service.worker.judge import Judge

    judges = Judge(engine, Broker(), settings.base_url, clear_seconds=settings.alert_clear_seconds)
    said = False
    for report in reports:
        for name, (_, outcome) in report.runs.items():
            judges.judge_run(outcome.run_id)
            with reading(engine) as session:
                repository = JudgementRepository(session)
                verdict = repository.verdict(outcome.run_id)
                judgements = [row.body for row in repository.of_run(outcome.run_id)]
                if verdict is not None:
                    typer.echo(f"Run {name}:")
                    print_verdict({"state": verdict.state, "body": verdict.body}, judgements)
            said = said or any(judgement["state"] == "yes" for judgement in judgements)
    return said


def _slug(name: str) -> str:
    import re

    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._") or "reference"


@contextmanager
def _bar(what: str, group: Group) -> Generator[Callable[[int], None]]:
    """A progress bar by bytes, where a person watches."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=not interactive(), transient=True) as progress:
        task = progress.add_task(what, total=group.size())
        yield lambda count: progress.advance(task, count)
