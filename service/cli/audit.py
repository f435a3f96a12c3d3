"""`pacenote audit`: whether a data loader reads each row once, on any number of hosts."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.output import JUDGED_NOT, fail, interactive, make_table, plain_console

if TYPE_CHECKING:
    from trainer_hooks.loader_audit import Pass, Report

EXAMPLE = "Example: pacenote audit my_project.data:make_loader --hosts 1,4,16 --records 4096 --resume-at 10"


def audit(
    factory: Annotated[
        str,
        typer.Argument(metavar="MODULE:FACTORY", help="A function that makes the loader of a host; or FILE.py:NAME."),
    ],
    hosts: Annotated[str, typer.Option(help="Host counts to play.")] = "1,4,16",
    workers: Annotated[str, typer.Option(help="Worker processes of each host's loader.")] = "0,2",
    records: Annotated[int | None, typer.Option(min=1, help="Rows of one pass; for a loader that never ends.")] = None,
    resume_at: Annotated[
        int | None, typer.Option(min=1, help="Also stop after so many batches a host, and resume.")
    ] = None,
    resume_hosts: Annotated[str | None, typer.Option(help="Host counts to resume on; by default the same.")] = None,
    resume_workers: Annotated[
        int | None, typer.Option(min=0, help="Workers to resume with; by default the same.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Field of a batch that names its rows; by default their content.")
    ] = None,
    padding: Annotated[int | None, typer.Option(help="Rows of this token alone are left out.")] = None,
    single_rows: Annotated[bool, typer.Option("--single-rows", help="The loader yields rows, not batches.")] = False,
    same_order: Annotated[
        bool, typer.Option("--same-order", help="An order that depends on the number of hosts is a fault.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The whole report as JSON.")] = False,
) -> None:
    """Play one host after another, read a pass over the data, and say which rows come never or twice, and why.

    The factory is given process_index, process_count, worker_count and start_step by name, where it takes them;
    jax.process_index() and jax.process_count() answer as the host that is played.
    Exit 0: each row is read once; 1: it is not; 2: there is no such factory, or it cannot be audited.
    """
    from trainer_hooks.loader_audit import audit as run

    make_loader = factory_of(factory)
    host_counts, worker_counts = _numbers("--hosts", hosts), _numbers("--workers", workers)
    targets = None if resume_hosts is None else _numbers("--resume-hosts", resume_hosts)
    try:
        with _Progress() as progress:
            report = run(
                make_loader,
                host_counts,
                worker_counts,
                records=records,
                resume_at=resume_at,
                resume_hosts=targets,
                resume_workers=resume_workers,
                key=key,
                batched=not single_rows,
                padding=padding,
                same_order=same_order,
                progress=progress.show,
            )
    except (ValueError, TypeError) as error:
        fail(f"{factory}: {error}")
    if as_json:
        typer.echo(report.to_json())
    else:
        _print(report)
    if not report.ok:
        raise typer.Exit(JUDGED_NOT)


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        fail(f"{option} must be whole numbers with commas between, such as 1,4,16; it is {text!r}")


def factory_of(name: str) -> Callable[..., Any]:
    """The function that `module:function` or `file.py:function` names; modules are also looked for in this folder."""
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        fail(f"{name} names no factory: give MODULE:FUNCTION or FILE.py:FUNCTION.")
    file = Path(where) if where.endswith(".py") else None
    if file is not None and not file.is_file():
        fail(f"There is no file {file}.")
    sys.path.insert(0, str(Path.cwd() if file is None else file.resolve().parent))
    try:
        # A file too is imported by its name, as worker processes will import it again.
        found: Any = importlib.import_module(where if file is None else file.stem)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever somebody's module does as it is imported
        fail(f"Cannot import {name}: {type(error).__name__}: {error}")
    if not callable(found):
        fail(f"{name} is no function, it is {found!r:.60}.")
    return found


class _Progress:
    """Which host is being read, where a person watches."""

    def __enter__(self) -> _Progress:
        self._status: Any = None
        if interactive():
            from rich.console import Console

            self._status = Console(stderr=True).status("reading …")
            self._status.start()
        return self

    def show(self, text: str) -> None:
        if self._status is not None:
            self._status.update(f"reading as {text} …")

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()


def _print(report: Report) -> None:
    from rich.text import Text

    console = plain_console()
    table = make_table("pass", "reads", "never", "repeats", "on several hosts", "order", "")
    for one in report.passes:
        table.add_row(*_cells(one), Text("ok", "green") if one.ok else Text("fault", "bold red"))
    console.print(table)
    for one in report.passes:
        for cause in one.causes:
            console.print(Text(f"{one.name}: {cause.name}", "yellow" if cause.note else "bold red"), soft_wrap=True)
            console.print(f"  {cause.because}", soft_wrap=True)
            if cause.remedy:
                console.print(f"  {cause.remedy}", soft_wrap=True)
            if not cause.note:
                _print_rows(console, one)
    for note in report.notes:
        console.print(f"Note: {note}", soft_wrap=True)
    console.print("Each row is read once." if report.ok else "Rows are not read once each.")


def _print_rows(console: Any, one: Pass) -> None:
    from trainer_hooks.loader_audit.report import examples

    for sentence in examples(one):
        console.print(f"    {sentence}", style="dim", soft_wrap=True)


def _cells(one: Pass) -> list[str]:
    never = f"{one.never - one.dropped:,}" + (f" (+{one.dropped:,} remainder)" if one.dropped else "")
    return [one.name, f"{one.read:,} of {one.expected:,}", never, f"{one.twice:,}", f"{one.across:,}", one.order or "–"]
