"""Megatron-LM's golden values: metric -> {start_step, end_step, step_interval, values {step: value}}."""

from __future__ import annotations

import re
from collections.abc import Iterator

from service.importers.blocks import Block, blocks_of
from service.importers.documents import begins_document, load, mapping
from service.importers.formats import Format, Head, Source
from service.importers.rows import NO_NUMBER, Account, Row, plain, whole

NAME = "megatron_golden"
KEY = re.compile(r'"(?:step_interval|end_step)"\s*:')


def recognise(head: Head) -> str | None:
    """Why a file holds golden values, None if it does not."""
    found = begins_document(head) and any(KEY.search(line) for line in head.lines)
    return "a JSON object of metrics with `start_step`, `step_interval` and `values`" if found else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """Metric after metric."""
    yield from blocks_of(_rows(source, account), in_time_order=False)


def _rows(source: Source, account: Account) -> Iterator[Row]:
    for name, entry in load(source).items():
        record = mapping(entry)
        values, start = record.get("values"), whole(str(record.get("start_step"))) or 0
        interval = whole(str(record.get("step_interval"))) or 1
        if isinstance(values, list):  # the older files give no steps
            values = {str(start + place * interval): value for place, value in enumerate(values)}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
        for text, value in mapping(values).items():
            account.lines += 1
            step, number = whole(text), plain(value)
            if step is None or step < 0 or number is None:
                account.refuse(NO_NUMBER, f"{name} at step {text}")
            else:
                yield Row(step, name, number)


FORMAT = Format(NAME, "Megatron-LM's golden values", recognise, read)
