"""`pacenote import`: brings any log into the database, as a run or as a reference."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
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
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|DIR|URL",
            help="A log, a folder of logs, or an address: of a file, of a run at W&B or on MLflow's server.",
        ),
    ],
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
    gradient_accumulation: Annotated[
        int, typer.Option(min=1, help="Microbatches of one step: MaxText sums its auxiliary losses over them.")
    ] = 1,
    sibling: Annotated[
        list[str] | None,
        typer.Option(help="Of a reference: another run of the log that is a healthy rerun (a seed), or `all` others."),
    ] = None,
    version: Annotated[str | None, typer.Option(help="Of a reference; by default from its content.")] = None,
    published: Annotated[
        str, typer.Option("--source", help="Of a reference: where the numbers were published; by default the address.")
    ] = "",
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
    from service.importers.download import shown
    from service.importers.remote import is_address
    from service.importers.rows import LogError

    settings = read_settings(database_url=database_url)
    if judge and (reference is None or as_ == "reference"):
        fail("--judge compares a run with a reference: name one with --reference.")
    published = published or (shown(source) if is_address(source) else "")
    try:
        with _found(source, format_) as found:
            _print_refused(found)
            engine = None if dry_run and reference is None else open_database(settings.database_url)
            options = _options(engine, as_, project, name, stage, reference, tokens_per_step, run, mapping)
            options = replace(options, accumulation=gradient_accumulation)
            if sibling and as_ != "reference":
                fail("--sibling names the reruns of a reference: it goes with --as reference.")
            many = bool(sibling) or (as_ == "reference" and len(found.groups) > 1)
            wanted = replace(options, run=None) if many else options
            previews = [_look(group, wanted) for group in found.groups]
            options = _placed(previews, options, given=tokens_per_step)
            if dry_run:
                return
            assert engine is not None
            if not yes and interactive() and not typer.confirm("Import this?", default=True, err=True):
                raise typer.Abort
            if as_ == "reference":
                _publish(engine, settings, previews, options, sibling or [], version, published, licence)
                return
            reports = _store(engine, settings, previews, options)
        if judge and _judge(engine, settings, reports):
            raise typer.Exit(JUDGED_NOT)
    except (LogError, ConflictError) as error:
        fail(error.detail if isinstance(error, ConflictError) else str(error))


@contextmanager
def _found(source: str, format_: str | None) -> Generator[Found]:
    """The logs there are; what comes over the network is kept while it is imported."""
    from service.importers.folders import find
    from service.importers.remote import find_remote, is_address, local_path
    from service.importers.rows import LogError

    if not is_address(source):
        yield find(local_path(source), format_)
        return
    with tempfile.TemporaryDirectory(prefix="pacenote-import-") as folder:
        with _bar_of_network(source) as told:
            found = find_remote(source, Path(folder), format_, told, warn)
        try:
            yield found
        except LogError as error:
            raise LogError(str(error).replace(f"{folder}/", "")) from error


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

    if as_ == "reference" and reference is not None:
        fail("--reference names what a run is compared with; a reference is compared with nothing.")
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


def _placed(previews: list[Preview], options: Options, given: int | None) -> Options:
    """The options with the tokens per step that the log says itself, where nothing else does; warns of disagreement."""
    said = {
        name or preview.group.name: one
        for preview in previews
        for name, one in preview.tokens_said().items()
        if options.run in (None, name)
    }
    rates = {one.per_step for one in said.values()}
    if options.tokens_per_step is None:
        if len(rates) == 1:
            one = next(iter(said.values()))
            typer.echo(f"  {one.per_step:,} tokens a step, by {one.by}")
            return replace(options, tokens_per_step=one.per_step)
        if options.role == "reference":
            why = f"{len(rates)} different numbers" if rates else "nothing"
            fail(f"A reference is placed by tokens, and the log says {why} of tokens a step: give --tokens-per-step.")
        return options
    ours = f"--tokens-per-step {given:,}" if given else f"{options.reference} has {options.tokens_per_step:,} a step"
    for name, one in said.items():
        if one.per_step != options.tokens_per_step:
            warn(f"{ours}, but {name} takes {one.per_step:,} tokens a step, by {one.by}")
    return options


def _store(
    engine: Engine,
    settings: Settings,
    previews: list[Preview],
    options: Options,
) -> list[Report]:
    from service.cli.import_report import print_report
    from service.importers.job import store

    reports: list[Report] = []
    for preview in previews:
        with database_trouble(settings.database_url), _bar("storing", preview.group) as progress:
            report = store(engine, preview, options, len(previews), progress, warn)
        print_report(report)
        reports.append(report)
    return reports


def _publish(
    engine: Engine,
    settings: Settings,
    previews: list[Preview],
    options: Options,
    siblings: list[str],
    version: str | None,
    source: str,
    licence: str,
) -> None:
    """Make a reference of the log, as `reference build` does, and install it."""
    from service.cli.import_report import print_report
    from service.cli.reference_pull import install_bundle
    from service.database.engine import reading
    from service.references import imported
    from service.references.building import About
    from service.references.repository import ReferenceRepository

    chosen = imported.choose(previews, options.run, siblings)
    index, in_log = chosen.main
    slug = imported.safe_name(options.name or in_log or previews[index].group.name)
    made = version or imported.version_of(previews, chosen, replace(options, run=None), (source, licence))
    about = About(slug, made, slug, licence, source or "not stated", source, retrieved="")
    with reading(engine) as session:
        known = version is None and ReferenceRepository(session).version(slug, made) is not None
    with tempfile.TemporaryDirectory(prefix="pacenote-import-") as work:
        if known:
            reports = imported.stored_before(previews)
            typer.echo(f"Reference {slug}, version {made} is installed already")
        else:
            bundle = Path(work) / "bundle"
            bar = partial(_bar, "storing")
            reports = imported.write_imported(bundle, previews, chosen, options, about, bar, warn)
            install_bundle(bundle, settings.database_url)
            _print_tolerances(bundle)
    for report in reports:
        print_report(report)


def _print_tolerances(bundle: Path) -> None:
    from service.references.bundle import load_bundle

    for metric, entry in load_bundle(bundle).description.tolerance.items():
        noise = f", noise of one point {entry.noise_sd:.2g}" if entry.noise_sd else ""
        typer.echo(f"  {metric}: tolerance {entry.value:.2g} {entry.unit}{noise} ({entry.source})")


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


@contextmanager
def _bar(what: str, group: Group) -> Generator[Callable[[int], None]]:
    """A progress bar by bytes, where a person watches."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=not interactive(), transient=True) as progress:
        task = progress.add_task(what, total=group.size())
        yield lambda count: progress.advance(task, count)


@contextmanager
def _bar_of_network(source: str) -> Generator[Callable[[int, int | None], None]]:
    """A progress bar where a person watches: bytes of a file, or values of a tracker, which does not say how many."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("downloading"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        disable=not interactive(),
        transient=True,
    ) as progress:
        task = progress.add_task(source, total=None)
        yield lambda count, total: progress.update(task, completed=count, total=total)
