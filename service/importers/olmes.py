"""OLMES: the metrics of one checkpoint, one task a file (`task-000-…-metrics.json`) or all tasks in one
(`metrics.json`, `metrics-all.jsonl`). The step stands in the file's name, its folder's, or in the model's path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from service.importers.blocks import Block, blocks_of
from service.importers.checkpoint_steps import step_in, step_of_file
from service.importers.documents import begins_document, load, mapping, objects
from service.importers.formats import Format, Head, Source
from service.importers.json_lines import flat
from service.importers.rows import Account, LogError, Row
from service.importers.text import open_lines

NAME = "olmes"


def recognise(head: Head) -> str | None:
    """Why a file is OLMES's, None if it is not."""
    text = "".join(head.lines)
    one = '"task_name"' in text and '"metrics"' in text
    found = begins_document(head) and (one or '"all_primary_scores"' in text)
    return "JSON with `task_name` and `metrics`, as OLMES writes it" if found else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """Every metric of every task, at the checkpoint's step.

    Raises:
        LogError: nothing tells the step.
    """
    yield from blocks_of(_rows(source, account))


def _rows(source: Source, account: Account) -> Iterator[Row]:
    for record in _records(source, account):
        step = _step(source, record)
        if step is None:
            raise LogError(f"{source.path}: no step; put the file in a folder named after its checkpoint: step1000/")
        task = str(record.get("task_name") or record.get("alias") or "task")
        for name, value in flat(mapping(record.get("metrics"))):
            yield Row(step, f"{task}/{name}", value)


def _records(source: Source, account: Account) -> Iterator[dict[str, Any]]:
    try:
        content = load(source)
    except LogError:
        yield from _lines(source, account)
        return
    tasks = list(objects(content.get("tasks")))
    account.lines += max(len(tasks), 1)
    if not tasks:
        yield content
    for record in tasks:
        yield {"model_config": content.get("model_config"), **record}


def _lines(source: Source, account: Account) -> Iterator[dict[str, Any]]:
    with open_lines(source.path, source.progress) as lines:
        for line in lines:
            account.lines += 1
            try:
                found: Any = json.loads(line)
            except (ValueError, RecursionError):
                if line.strip():
                    account.skip(account.lines)
                continue
            yield mapping(found)


def _step(source: Source, record: dict[str, Any]) -> int | None:
    model = mapping(record.get("model_config"))
    told = [model.get("revision"), model.get("model_path"), model.get("model"), record.get("model_name")]
    named = [found for text in told if isinstance(text, str) and (found := step_in(text)) is not None]
    return named[0] if named else step_of_file(source.path)


FORMAT = Format(NAME, "OLMES", recognise, read, together="checkpoints")
