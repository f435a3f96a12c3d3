"""`pacenote reference build`, `export` and `install`: references made from logs, carried as one file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from service.cli.opening import open_database, read_settings
from service.cli.output import fail, warn
from service.cli.reference_pull import install_bundle
from service.cli.replay import chosen_names

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from service.references.building import Origin, StageWish

EXAMPLE_BUILD = (
    "Example: pacenote reference build small-7b stage1=part1.log stage1=part2.log --sibling seed-2=other.log "
    "--tokens-per-step 524288 --licence CC-BY-4.0 --citation 'Someone, 2026'"
)
EXAMPLE_EXPORT = "Example: pacenote reference export small-7b small-7b.pacenote"
EXAMPLE_INSTALL = "Example: pacenote reference install small-7b.pacenote"

DatabaseUrl = Annotated[str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")]


def build(
    slug: Annotated[str, typer.Argument(help="Name of the reference.")],
    sources: Annotated[
        list[str],
        typer.Argument(metavar="[STAGE=]LOG…", help="Logs in order of launch, or run:ID for a run of the database."),
    ],
    licence: Annotated[str, typer.Option(help="What may be done with the numbers.")],
    citation: Annotated[str, typer.Option(help="Who published them, and where.")],
    sibling: Annotated[
        list[str] | None, typer.Option(help="[STAGE:]NAME=LOG: a healthy rerun, such as another seed. Repeatable.")
    ] = None,
    tokens_per_step: Annotated[
        list[str] | None, typer.Option(help="N, or STAGE=N; by default as the log counts tokens.")
    ] = None,
    steps: Annotated[
        list[str] | None, typer.Option(help="N, or STAGE=N: whole length; by default the last step.")
    ] = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", help="NAME=METRIC: what a name in a log means. May be repeated.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="KEY=ITEMS: a task whose accuracy is followed.")] = None,
    primary: Annotated[str | None, typer.Option(help="The held-out set that counts first.")] = None,
    rows: Annotated[
        list[Path] | None, typer.Option(help="A rows.bin: which rows are read at which step. One per stage.")
    ] = None,
    order: Annotated[Path | None, typer.Option(help="An order.json: how the data order is computed.")] = None,
    title: Annotated[str | None, typer.Option(help="By default the name.")] = None,
    version: Annotated[str, typer.Option(help="A version is never edited.")] = "1",
    source: Annotated[str, typer.Option(help="Address of the numbers.")] = "",
    loss: Annotated[str | None, typer.Option(help="What exactly the train loss is.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the bundle to this .pacenote file.")] = None,
    install: Annotated[bool, typer.Option(help="Install the reference.")] = True,
    database_url: DatabaseUrl = None,
) -> None:
    """Build a reference from logs: tokens, noise and tolerance are worked out, and source and licence recorded."""
    from pydantic import ValidationError

    from service.importers.rows import LogError
    from service.references.building import NOT_STATED, About, StageWish, add_order
    from service.references.building import build as write_bundle
    from service.references.series_file import BundleError
    from service.references.writing import write_archive

    engine = open_database(read_settings(database_url=database_url).database_url)
    stages: dict[str, StageWish] = {}
    for given in sources:
        name, origin = _staged(given)
        stages.setdefault(name, StageWish(name, [])).origins.append(_origin(engine, origin))
    rates, lengths = _numbers("--tokens-per-step", tokens_per_step, stages), _numbers("--steps", steps, stages)
    for given in sibling or []:
        stage, name, origin = _sibling(given, stages)
        stages[stage].siblings.setdefault(name, []).append(_origin(engine, origin))
    wishes = [
        StageWish(wish.name, wish.origins, wish.siblings, rates.get(wish.name), lengths.get(wish.name))
        for wish in stages.values()
    ]
    about = About(slug, version, title or slug, licence, citation, source, loss or NOT_STATED, primary, _tasks(task))
    with tempfile.TemporaryDirectory(prefix="pacenote-build-") as work:
        folder = Path(work) / "bundle"
        try:
            write_bundle(folder, about, wishes, chosen_names(mapping or []), engine, warn)
            add_order(folder, rows or [], order)
            if out is not None:
                typer.echo(f"The bundle is {write_archive(folder, out)}")
        except ValidationError as error:
            first = error.errors()[0]
            fail(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")
        except (LogError, BundleError, OSError) as error:
            fail(str(error))
        if install:
            install_bundle(folder, database_url)


def export(
    slug: Annotated[str, typer.Argument(help="Name of the reference.")],
    file: Annotated[Path | None, typer.Argument(help="By default NAME-VERSION.pacenote here.")] = None,
    version: Annotated[str | None, typer.Option(help="By default the newest.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Write an installed reference as one file, to be installed elsewhere."""
    from service.database.engine import reading
    from service.references.exporting import export_reference
    from service.references.repository import ReferenceRepository
    from service.references.shipped import install_shipped

    engine = open_database(read_settings(database_url=database_url).database_url)
    install_shipped(engine)
    with reading(engine) as session:
        references = ReferenceRepository(session)
        found = references.current(slug) if version is None else references.version(slug, version)
        if found is None:
            known = ", ".join(reference.slug for reference in references.all_current())
            fail(f"There is no reference {slug}{f' {version}' if version else ''}; there are {known}.")
        try:
            target = export_reference(session, found, file or Path(f"{found.slug}-{found.version}.pacenote"))
        except OSError as error:
            fail(f"{file}: cannot be written ({error.strerror}).")
    typer.echo(f"{slug} version {found.version} is {target} ({target.stat().st_size:,} bytes)")


def install(
    file: Annotated[Path, typer.Argument(help="A .pacenote file, or a bundle's folder.")],
    database_url: DatabaseUrl = None,
) -> None:
    """Install a reference from a file; the same file again changes nothing."""
    install_bundle(file, database_url)


def _staged(text: str) -> tuple[str, str]:
    """(stage, log) of `[STAGE=]LOG`."""
    stage, equals, log = text.partition("=")
    return (stage, log) if equals and stage and "/" not in stage else ("stage1", text)


def _sibling(text: str, stages: dict[str, StageWish]) -> tuple[str, str, str]:
    """(stage, name, log) of `[STAGE:]NAME=LOG`."""
    head, equals, log = text.partition("=")
    stage, colon, name = head.rpartition(":")
    stage = stage if colon else next(iter(stages))
    if not equals or not name or not log or "/" in name or name.startswith("."):
        fail(f"--sibling {text!r}: write NAME=LOG or STAGE:NAME=LOG.")
    if stage not in stages:
        fail(f"--sibling {text!r}: there is no stage {stage}; there are {', '.join(stages)}.")
    return stage, name, log


def _numbers(option: str, texts: list[str] | None, stages: dict[str, StageWish]) -> dict[str, int]:
    """Stage -> number of `N` (every stage) and `STAGE=N`."""
    found: dict[str, int] = {}
    for text in texts or []:
        stage, _, number = text.rpartition("=")
        plain = number.replace("_", "").replace(",", "")
        if not plain.isdigit() or int(plain) < 1 or (stage and stage not in stages):
            fail(f"{option} {text!r}: write a whole number, or STAGE=NUMBER with a stage of {', '.join(stages)}.")
        found |= dict.fromkeys([stage] if stage else list(stages), int(plain))
    return found


def _tasks(texts: list[str] | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts or []:
        key, _, items = text.rpartition("=")
        if not key or not items.isdigit() or int(items) < 1:
            fail(f"--task {text!r}: write KEY=ITEMS, the number of items that the task has.")
        found[key] = int(items)
    return found


def _origin(engine: Engine, text: str) -> Origin:
    """A log, or a run of the database by its id."""
    from service.database.engine import reading
    from service.runs.repository import RunRepository

    if not text.startswith("run:"):
        return Path(text)
    try:
        uuid = UUID(text.removeprefix("run:"))
    except ValueError:
        fail(f"{text}: write run: and the id of a run, as GET /api/v1/runs lists it.")
    with reading(engine) as session:
        run = RunRepository(session).by_uuid(uuid)
        if run is None:
            fail(f"{text}: there is no such run.")
        session.expunge(run)
        return run
