"""`pacenote reference`: published runs that are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.opening import install_shipped_references, open_database, read_settings
from service.cli.output import fail, make_table, plain_console

if TYPE_CHECKING:
    from rich.table import Table
    from sqlalchemy import Engine

    from service.references.description import Description

EXAMPLE_LIST = "Example: pacenote reference list"
EXAMPLE_SHOW = "Example: pacenote reference show olmo3-7b"

Url = Annotated[str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")]


def show_list(database_url: Url = None) -> None:
    """List the references; those that come with the program are installed first."""
    from service.database.engine import reading
    from service.references.describe import description
    from service.references.repository import ReferenceRepository

    engine = _open(database_url)
    table = make_table("slug", "version", "title", "stages", "source")
    with reading(engine) as session:
        for reference in ReferenceRepository(session).all_current():
            content = description(reference)
            stages = ", ".join(stage.name for stage in content.stages)
            table.add_row(reference.slug, reference.version, reference.title, stages, content.source.url)
    plain_console().print(table)


def show(
    slug: Annotated[str, typer.Argument(help="Name of the reference.")],
    version: Annotated[str | None, typer.Option(help="By default the newest.")] = None,
    database_url: Url = None,
) -> None:
    """Show one reference: stages, held-out sets, tasks, tolerances, source and open conflicts."""
    from service.database.engine import reading
    from service.references.describe import description
    from service.references.repository import ReferenceRepository

    engine = _open(database_url)
    with reading(engine) as session:
        repository = ReferenceRepository(session)
        found = repository.current(slug) if version is None else repository.version(slug, version)
        if found is None:
            known = ", ".join(reference.slug for reference in repository.all_current())
            fail(f"There is no reference {slug}{f' {version}' if version else ''}; there are {known}.")
        content = description(found)
    console = plain_console()
    console.print(f"{content.title} ({content.slug}, version {content.version})")
    console.print(f"Source: {content.source.citation}. {content.source.url}")
    console.print(f"Licence: {content.source.licence}.")
    for table in _tables(content):
        console.print(table)
    for conflict in content.conflicts:
        console.print(f"- {conflict}")


def _tables(content: Description) -> list[Table]:
    stages = make_table("stage", "steps", "tokens per step", "begins at token", "series")
    for stage in content.stages:
        series = stage.series or "none published"
        stages.add_row(
            stage.name, f"{stage.steps:,}", f"{stage.tokens_per_step:,}", f"{stage.token_offset:,.0f}", series
        )
    heldout = make_table("held-out set", "metric", "counts first")
    for entry in content.heldout:
        heldout.add_row(entry.name, entry.metric, "yes" if entry.primary else "")
    tasks = make_table("task", "items", "values")
    for task in content.tasks:
        tasks.add_row(task.key, f"{task.items:,}", "published" if task.published else "none published")
    tolerances = make_table("tolerance of", "value", "unit", "rests on runs", "source")
    for metric, entry in content.tolerance.items():
        tolerances.add_row(metric, f"{entry.value:g}", entry.unit, str(entry.runs), entry.source)
    return [table for table in (stages, heldout, tasks, tolerances) if table.row_count]


def _open(database_url: str | None) -> Engine:
    settings = read_settings(database_url=database_url)
    engine = open_database(settings.database_url)
    install_shipped_references(engine, settings.database_url)
    return engine
