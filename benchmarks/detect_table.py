"""Rows of the detection table, and how they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

WIDTH = 190  # columns, where the output is no terminal


@dataclass(frozen=True)
class Row:
    """One line: what was tried, the bar ("" where there is none), ours, the moving average beside it. `met` is None
    without a bar."""

    what: str
    bar: str = ""
    measured: str = ""
    beside: str = ""
    met: bool | None = None


def console() -> Console:
    """Where the table goes."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=WIDTH)


def show(out: Console, title: str, rows: Sequence[Row]) -> None:
    """One section."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", expand=True)
    for name, ratio in (("what", 7), ("bar", 4), ("ours", 6), ("moving average", 4), ("", 1)):
        table.add_column(name, ratio=ratio, overflow="fold")
    for row in rows:
        mark = "" if row.met is None else "met" if row.met else "MISSED"
        table.add_row(row.what, row.bar, row.measured, row.beside, mark)
    out.print(table)
    out.print()


def quantiles(values: Sequence[float], *at: float) -> str:
    """Quantiles with four digits, or `none`."""
    return " / ".join(f"{np.percentile(values, q):,.4g}" for q in at) if values else "none"


def at_most(values: Sequence[float], q: float, most: float) -> bool:
    """Whether a quantile is at most that; not without values."""
    return bool(values) and float(np.percentile(values, q)) <= most
