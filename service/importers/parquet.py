"""Parquet, and Arrow files: W&B's history artifacts, Trackio's, pandas', any with a column that counts steps."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from service.importers.blocks import Block
from service.importers.formats import Format, Head, Source
from service.importers.layout import layout_of
from service.importers.rows import Account, LogError
from service.importers.tables import Tables
from service.importers.text import open_bytes, unpacked

pa: Any = import_module("pyarrow")  # have no types
pq: Any = import_module("pyarrow.parquet")
ipc: Any = import_module("pyarrow.ipc")

NAME = "parquet"
BATCH_ROWS, BATCH_CELLS = 32_768, 2_000_000
BUFFER = 64 * 1024  # of each column: without one, whole row groups come into memory


def recognise(head: Head) -> str | None:
    """Why a file is Parquet or Arrow, None if it is neither."""
    if head.data.startswith(b"PAR1"):
        return "the file begins with PAR1"
    return "the file begins with ARROW1" if head.data.startswith(b"ARROW1") else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """Rows in the file's order.

    Raises:
        LogError: the file is damaged, or no column counts steps.
    """
    try:
        with unpacked(source.path) as path, open_bytes(path) as data:
            arrow = data.peek(6)[:6] == b"ARROW1"
            batches: Iterator[Any] = _arrow(data) if arrow else _parquet(data)
            tables, rows = None, 0
            for batch in batches:
                names, arrays = _flat(batch)
                if tables is None:
                    layout = layout_of(names)
                    if layout is None:
                        raise LogError(f"{source.path}: no column counts steps; there are {', '.join(names[:12])}")
                    tables = Tables(layout, account)
                account.lines += len(batch)
                rows += len(batch)
                yield from tables.blocks(arrays)
                source.progress(batch.nbytes)
    except (pa.ArrowException, OSError) as error:
        raise LogError(f"{source.path}: damaged or cut off ({str(error).splitlines()[0][:200]})") from error
    if tables is not None:
        tables.finish()


def _parquet(data: Any) -> Iterator[Any]:
    file = pq.ParquetFile(data, buffer_size=BUFFER, pre_buffer=False)
    columns = max(file.metadata.num_columns, 1)
    # Decoding takes a tenth of an import's time: threads would gain little, and each has memory of its own.
    return file.iter_batches(max(min(BATCH_ROWS, BATCH_CELLS // columns), 1024), use_threads=False)


def _arrow(data: Any) -> Iterator[Any]:
    file = ipc.open_file(pa.PythonFile(data))
    for place in range(file.num_record_batches):
        yield file.get_batch(place)


def _flat(batch: Any) -> tuple[list[str], list[Any]]:
    """Names and columns; those of nested objects are joined by "/"."""
    names: list[str] = list(batch.schema.names)
    arrays: list[Any] = list(batch.columns)
    while any(pa.types.is_struct(array.type) for array in arrays):
        pairs: list[tuple[str, Any]] = []
        for name, array in zip(names, arrays, strict=True):
            if pa.types.is_struct(array.type):
                pairs += [
                    (f"{name}/{field.name}", inner) for field, inner in zip(array.type, array.flatten(), strict=True)
                ]
            else:
                pairs.append((name, array))
        names, arrays = [name for name, _ in pairs], [array for _, array in pairs]
    return names, arrays


FORMAT = Format(NAME, "Parquet and Arrow", recognise, read)
