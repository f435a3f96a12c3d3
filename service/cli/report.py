"""`pacenote report`: one run's whole account, as a page, as Markdown, or as data."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from service.cli.output import JUDGED_NOT, fail
from service.cli.reporting import DatabaseUrl, Stage, Url, source_of

if TYPE_CHECKING:
    from service.reports.document import Report

EXAMPLE = "Example: pacenote report olmo3-7b/olmo3-7b-v7x --format html -o report.html"
Format = Literal["html", "md", "json"]


def report(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run's id, NAME, or PROJECT/NAME.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="One page; tables for an issue; or the data.")] = "md",
    at: Annotated[
        str | None, typer.Option(help="Checkpoints, by step or tokens: 735000,1.5T; by default a few that tell.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A file; by default stdout.")] = None,
    verify: Annotated[
        Path | None, typer.Option(help="Instead: say whether this report (html or json) was changed.")
    ] = None,
    stage: Stage = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
) -> None:
    """Write a run's report from what is stored: the same bytes for the same data.

    Exit 0: written, or unchanged; 1: --verify says it was changed; 2: refused.
    """
    if verify is not None:
        if run is not None or out is not None or at is not None:
            fail("--verify takes a file and nothing else.")
        _verify(verify)
        return
    if run is None:
        fail("Name a run, or a file to --verify.")
    from service.reports.document import ReportError, from_json
    from service.reports.endpoints import rendered

    with source_of(run, stage, database_url, url) as source:
        text = source.report(at)
    try:
        made = from_json(text)
    except ReportError as error:
        fail(f"{url} answered, but {error}")
    _write(rendered(made, format_), out)


def _write(text: str, out: Path | None) -> None:
    data = text.encode("utf-8", "replace")
    if out is None or str(out) == "-":
        typer.get_binary_stream("stdout").write(data)
        return
    new = out.with_name(f".{out.name}.{os.getpid()}.new")
    try:
        new.write_bytes(data)
        new.replace(out)
    except OSError as error:
        fail(f"{out}: cannot be written ({error.strerror}).")
    finally:
        with suppress(OSError):  # where nothing can be written nothing was
            new.unlink()
    typer.echo(f"The report is in {out} ({len(data):,} bytes)")


def _verify(file: Path) -> None:
    from service.reports.document import ReportError, from_json, is_unchanged
    from service.reports.html import from_html

    try:
        text = file.read_bytes().decode()
    except OSError as error:
        fail(f"{file}: cannot be read ({error.strerror}).")
    except UnicodeDecodeError:
        fail(f"{file}: is no text.")
    page = text.lstrip().startswith("<")
    try:
        found = from_html(text) if page else from_json(text)
    except ReportError as error:
        fail(f"{file}: {error}.")
    if not is_unchanged(found):
        typer.echo(f"{file}: its data were changed: they are not those of the digest {found.digest}")
        raise typer.Exit(JUDGED_NOT)
    if page:
        _verify_page(file, text, found)
    typer.echo(f"{file}: unchanged, {found.digest}")


def _verify_page(file: Path, text: str, found: Report) -> None:
    """Whether a page is what its data make."""
    from importlib.metadata import version

    from service.reports.html import to_html

    if to_html(found) == text:
        return
    mine = f"pacenote {version('pacenote')}"
    if found.generator != mine:
        fail(f"{file}: its data are unchanged; {found.generator} wrote the page, and only that can tell of it.")
    typer.echo(f"{file}: its data are unchanged, but the page was changed: it is not what they make")
    raise typer.Exit(JUDGED_NOT)
