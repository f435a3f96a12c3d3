"""`pacenote reference rows`: the rows that a run is expected to read, made without training."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.audit import factory_of
from service.cli.output import fail, interactive, warn

if TYPE_CHECKING:
    from service.references.data_order import DataOrder, ExpectedRows

EXAMPLE = "Example: pacenote reference rows my_project.data:make_loader --steps 1000 --hosts 4 -o rows.bin"


def rows(
    factory: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:FACTORY]", help="A function that makes the loader of a host; or FILE.py:NAME."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("rows.bin"),
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps; needed for a loader.")] = None,
    stage: Annotated[str, typer.Option(help="Stage of the reference.")] = "stage1",
    hosts: Annotated[int, typer.Option(min=1, help="How many hosts share the data; each is played in turn.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes of each host's loader.")] = 0,
    key: Annotated[str, typer.Option(help="Field of a batch that holds the tokens.")] = "inputs",
    batches_per_step: Annotated[int, typer.Option(min=1, help="With gradient accumulation.")] = 1,
    sample: Annotated[int, typer.Option(min=1, help="1 row in so many, as the runs send them.")] = 1024,
    order: Annotated[Path | None, typer.Option(help="Instead of a loader: an order.json that can be computed.")] = None,
    tokens: Annotated[
        list[Path] | None, typer.Option(help="With --order: the token files in order. May be repeated.")
    ] = None,
) -> None:
    """Write the fingerprints of the rows that the right loader, or the published order, reads at each step.

    The file goes into a reference's bundle as rows.bin. The factory is given process_index, process_count, worker_count
    and start_step by name, where it takes them.
    """
    from service.importers.rows import LogError
    from service.references.expecting import by_loader, by_order

    if (factory is None) == (order is None):
        fail("Give either MODULE:FACTORY or --order with --tokens.")
    try:
        if order is not None:
            entry = _order(order, stage)
            with _Progress() as progress:
                made = by_order(entry, tokens or [], stage, steps, sample=sample, progress=progress.show)
        else:
            assert factory is not None
            if steps is None:
                fail("Give --steps: a loader may never end.")
            with _Progress() as progress:
                made = by_loader(
                    factory_of(factory), stage, steps, hosts=hosts, workers=workers, rows=key,
                    batches_per_step=batches_per_step, sample=sample, progress=progress.show,
                )  # fmt: skip
        _write(out, made)
    except (LogError, ValueError, TypeError, OSError) as error:
        fail(f"{factory or order}: {error}")
    last = made.seen[-1][1]
    if steps is not None and last < steps:
        warn(f"The data end at step {last:,}, before step {steps:,}.")
    read = sum((to - first + 1) * each for first, to, each in made.seen)
    typer.echo(f"{out} holds {len(made.steps):,} of {read:,} rows, 1 in {sample:,}, of steps 1 to {last:,}.")


def _order(path: Path, stage: str) -> DataOrder:
    from pydantic import ValidationError

    from service.references.data_order import DataOrder, read_orders
    from service.references.series_file import BundleError

    try:
        entries = read_orders(str(path), path.read_bytes())
        if stage not in entries:
            fail(f"{path} has no stage {stage}; it has {', '.join(entries) or 'none'}.")
        return DataOrder.model_validate(entries[stage])
    except OSError as error:
        fail(f"{path} cannot be read ({error.strerror}).")
    except BundleError as error:
        fail(str(error))
    except ValidationError as error:
        first = error.errors()[0]
        fail(f"{path}: {'.'.join(str(part) for part in (stage, *first['loc']))}: {first['msg']}")


def _write(path: Path, made: ExpectedRows) -> None:
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_bytes(made.to_bytes())
        new.replace(path)
    except OSError as error:
        fail(f"{path}: cannot be written ({error.strerror}).")
    finally:
        with suppress(OSError):  # where nothing can be written nothing was
            new.unlink()


class _Progress:
    """Which host is being read, and how far, where a person watches."""

    def __enter__(self) -> _Progress:
        self._bar = None
        if interactive():
            from rich.console import Console

            self._bar = Console(stderr=True).status("reading …")
            self._bar.start()
        return self

    def show(self, who: str, step: int) -> None:
        """Called for every batch."""
        if self._bar is not None and step % 10 == 0:
            self._bar.update(f"reading as {who}, step {step:,} …")

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
