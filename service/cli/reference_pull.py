"""`pacenote reference pull`: the whole published history of a run, from its public W&B project."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.opening import database_trouble, open_database, read_settings
from service.cli.output import fail, interactive, warn
from service.cli.replay import chosen_names

if TYPE_CHECKING:
    from service.importers.wandb_pull import PartCounts, Plan, Pull, StageRequest
    from service.references.pulling import Wishes

EXAMPLE = "Example: pacenote reference pull olmo3-7b"


def pull(
    slug: Annotated[str, typer.Argument(help="Name of the reference; olmo3-7b is known.")],
    wandb: Annotated[str | None, typer.Option(help="ENTITY/PROJECT, for a project that is not known.")] = None,
    group: Annotated[str | None, typer.Option(help="Only the runs of this group of the project.")] = None,
    run: Annotated[list[str] | None, typer.Option(help="Only this run, by id; repeated in order of launch.")] = None,
    stage: Annotated[
        str | None, typer.Option(help="Name of the stage (stage1); of a known reference: only this one.")
    ] = None,
    tokens_per_step: Annotated[int | None, typer.Option(help="Where the source does not say it.")] = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", help="NAME=METRIC: what a name means. May be repeated.")
    ] = None,
    version: Annotated[str | None, typer.Option(help="By default full- and the day of the pull.")] = None,
    title: Annotated[str | None, typer.Option(help="By default the project's name.")] = None,
    licence: Annotated[str | None, typer.Option(help="What the source says about using its numbers.")] = None,
    url: Annotated[str, typer.Option(envvar="WANDB_BASE_URL", help="The W&B host.")] = "https://api.wandb.ai",
    work: Annotated[
        Path | None, typer.Option(help="Folder for what is pulled; by default in the user's cache.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what was pulled before.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the bundle to this .pacenote file too.")] = None,
    install: Annotated[bool, typer.Option(help="Install the reference when all is there.")] = True,
    patience: Annotated[float, typer.Option(help="Seconds without an answer to give up at.")] = 900.0,
    database_url: Annotated[str | None, typer.Option(help="By default PACENOTE_DATABASE_URL.")] = None,
) -> None:
    """Pull every metric at every step of every launch, without a key, and install it as a new version.

    The same command goes on where an earlier one ended, however it ended. A private project needs WANDB_API_KEY.
    """
    from pydantic import ValidationError

    from service.importers.rows import LogError
    from service.importers.wandb_api import DEFAULT_URL, WandbApi
    from service.importers.wandb_pull import Pull
    from service.references.pulling import Wishes, known_pull

    known = known_pull(slug) if wandb is None else None
    if known is None and wandb is None:
        fail(f"{slug} is no reference whose place is known: name its project with --wandb ENTITY/PROJECT.")
    entity, _, project = (wandb or "").partition("/")
    if known is not None:
        entity, project = known.entity, known.project
    if not entity or not project or "/" in project:
        fail(f"--wandb {wandb!r}: write ENTITY/PROJECT.")
    wishes = Wishes(slug, version, title, licence, tokens_per_step, chosen_names(mapping or []))
    stages = _stages(known.stages if known else None, stage, group, tuple(run or ()))
    folder = _work_folder(slug, work, fresh)
    host = "https://wandb.ai" if url.rstrip("/") == DEFAULT_URL else url.rstrip("/")
    try:
        with WandbApi(entity, project, url=url, patience=patience, say=warn) as api:
            pulled = Pull(folder, api, stages)
            plan = _fetch(pulled)
        bundle = _make(pulled, plan, wishes, f"{host}/{entity}/{project}", known.bundle if known else None)
        if out is not None:
            from service.references.writing import write_archive

            typer.echo(f"The bundle is {write_archive(bundle, out)}")
    except (LogError, OSError) as error:
        fail(str(error))
    except ValidationError as error:
        first = error.errors()[0]
        fail(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")
    if install:
        install_bundle(bundle, database_url)


def install_bundle(path: Path, database_url: str | None) -> None:
    """Install a bundle and say so; refusals become one line."""
    from service.database.engine import writing
    from service.errors import ConflictError
    from service.references.bundle import BundleError, load_bundle
    from service.references.repository import ReferenceRepository

    url = read_settings(database_url=database_url).database_url
    engine = open_database(url)
    try:
        bundle = load_bundle(path)
        with database_trouble(url), writing(engine) as session:
            reference = ReferenceRepository(session).install(bundle)
            typer.echo(f"Installed {reference.slug} version {reference.version}: {reference.title}")
    except BundleError as error:
        fail(str(error))
    except ConflictError as error:
        fail(error.detail)


def _stages(
    known: list[StageRequest] | None, stage: str | None, group: str | None, runs: tuple[str, ...]
) -> list[StageRequest]:
    from service.importers.wandb_pull import StageRequest

    if known is None:
        return [StageRequest(stage or "stage1", group, runs)]
    if group or runs:
        fail("The runs of this reference are known; --group and --run go with --wandb.")
    chosen = [one for one in known if stage in (None, one.name)]
    if not chosen:
        fail(f"There is no stage {stage}; there are {', '.join(one.name for one in known)}.")
    return chosen


def _work_folder(slug: str, work: Path | None, fresh: bool) -> Path:
    import re

    from platformdirs import user_cache_path

    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", slug):
        fail(f"{slug!r} is no name of a reference: lower-case letters, digits, dots, dashes.")
    folder = work or user_cache_path("pacenote", appauthor=False) / "pulls" / slug
    if fresh and folder.exists():
        if not (folder / "plan.json").exists():
            fail(f"{folder} holds no pull; it is left as it is.")
        shutil.rmtree(folder)
    return folder


def _fetch(pulled: Pull) -> Plan:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    plan = pulled.plan()
    runs = [run for stage in plan.stages.values() for run in stage]
    empty = sum(run.last_step is None for run in runs)
    typer.echo(f"{len(runs)} launches, {empty} of them empty, {plan.pages:,} pages; kept in {pulled.folder}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=not interactive()) as progress:
        task = progress.add_task("pages", total=plan.pages)

        def advanced(_counts: PartCounts) -> None:
            progress.advance(task)

        pulled.fetch(plan, advanced)
    return plan


def _make(pulled: Pull, plan: Plan, wishes: Wishes, source_url: str, base: Path | None) -> Path:
    from service.references.pulling import make_bundle

    target = pulled.folder / f"bundle-{wishes.version or f'full-{plan.retrieved}'}"
    if target.exists():  # made by an earlier call from the same parts, but perhaps with other options
        shutil.rmtree(target)
    make_bundle(pulled, plan, wishes, target, source_url, base, warn)
    typer.echo(f"The bundle is in {target}")
    return target
