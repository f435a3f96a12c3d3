"""What OLMo-core prints: `[step=N/M,epoch=E…]`, and under it one indented `name=value` per metric."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from service.importers.formats import line_format
from service.importers.rows import Account, Row, number
from service.importers.stamps import leading_time

NAME = "olmo_core"
LONGEST_LINE = 4096
MARK = re.compile(r"\[step=(?P<step>\d{1,18})/(?:\d+|\?\?\?),epoch=")
METRIC = re.compile(r"^\s+(?P<name>[A-Za-z][^=]*/[^=]*)=(?P<value>\S+)\s*$")


def recognise(head: Sequence[str]) -> str | None:
    """Why these first lines are OLMo-core's, None if they are not."""
    for line, following in pairwise(head):
        if MARK.search(line) and METRIC.match(following):
            return "lines such as `[step=1/…,epoch=1]` with indented metrics below"
    return None


def read(lines: Iterator[str], account: Account) -> Iterator[Row]:
    """Rows in the log's order. Other lines are counted, a step without metrics is none of them."""
    step, time = None, None
    for line in lines:
        account.lines += 1
        mark = MARK.search(line) if len(line) <= LONGEST_LINE else None
        if mark is not None:
            step, time = int(mark["step"]), leading_time(line)
            continue
        metric = METRIC.match(line) if step is not None and len(line) <= LONGEST_LINE else None
        value = number(metric["value"]) if metric is not None else None
        if step is not None and metric is not None and value is not None:
            if not line.endswith("\n"):  # the number may be cut
                account.cut_off(account.lines)
                return
            yield Row(step, metric["name"].strip(), value, time)
        elif line.strip():
            account.skip(account.lines)


FORMAT = line_format(NAME, "OLMo-core's console", recognise, read)
