"""lm-evaluation-harness: one JSON file per checkpoint with results per task; and tables of checkpoints made from them.

The step stands in the file's name, its folder's, or in the revision the file says was evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from service.importers.blocks import Block, blocks_of
from service.importers.checkpoint_steps import step_in, step_of_file
from service.importers.documents import begins_document, load, mapping
from service.importers.formats import Format, Head, Source
from service.importers.rows import NO_STEP, Account, LogError, Row, plain, step_of_tokens, unix_seconds, whole

RESULTS = re.compile(r'"results"\s*:\s*\{')
KEPT_APART = ("tokens", "checkpoints")


def recognise(head: Head) -> str | None:
    """Why a file holds the results of one checkpoint, None if it does not."""
    text = "".join(head.lines)
    found = begins_document(head) and RESULTS.search(text) and '"checkpoints"' not in text and '"tokens"' not in text
    return "a JSON object with `results` per task" if found else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """Every number of every task, at the checkpoint's step.

    Raises:
        LogError: neither the file nor its name tells the step.
    """
    content = load(source)
    step = _step(source, content)
    if step is None:
        raise LogError(f"{source.path}: no step; name the file after its checkpoint, for example model_step1000.json")
    time = unix_seconds(content.get("date"))
    yield from blocks_of((Row(step, name, value, time) for name, value in _values(content, account)))


def _values(content: dict[str, Any], account: Account) -> Iterator[tuple[str, float]]:
    for task, metrics in mapping(content.get("results")).items():
        account.lines += 1
        for name, value in mapping(metrics).items():
            number = plain(value) if name != "alias" else None
            if number is not None:
                yield f"{task}/{name.removesuffix(',none')}", number


def _step(source: Source, content: dict[str, Any]) -> int | None:
    step = step_in(source.path.name)
    if step is not None:
        return step
    arguments = mapping(content.get("config")).get("model_args")
    told = (content.get("model_name"), mapping(arguments).get("revision"), arguments)
    named = [found for text in told if isinstance(text, str) and (found := step_in(text)) is not None]
    return named[-1] if named else step_of_file(source.path)


def recognise_aggregate(head: Head) -> str | None:
    """Why a file holds the results of many checkpoints in columns, None if it does not."""
    text = "".join(head.lines)
    found = begins_document(head) and re.search(r'"(?:tokens|checkpoints)"\s*:\s*\[', text)
    return "a JSON object with `checkpoints`, `tokens` and `results` per task, in columns" if found else None


def read_aggregate(source: Source, account: Account) -> Iterator[Block]:
    """Columns of values, one per checkpoint; steps as the checkpoints tell them, else from their tokens.

    Raises:
        LogError: neither tells the steps.
    """
    content = load(source)
    steps, tokens = content.get("checkpoints"), content.get("tokens")
    counts = [_checkpoint(entry) for entry in steps] if isinstance(steps, list) else []  # pyright: ignore[reportUnknownVariableType]
    if not counts and isinstance(tokens, list):
        if source.steps_at is None:
            raise LogError(f"{source.path}: checkpoints by tokens alone; say how many a step has: --tokens-per-step")
        counts = [step_of_tokens(plain(entry), source.steps_at) for entry in cast("list[Any]", tokens)]
    yield from blocks_of(_cells(content, counts, account), in_time_order=False)


def _cells(content: dict[str, Any], steps: list[int | None], account: Account) -> Iterator[Row]:
    for task, metrics in mapping(content.get("results")).items():
        for name, values in mapping(metrics).items():
            if not isinstance(values, list):
                continue
            for place, value in enumerate(values):  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
                number = plain(value)
                step = steps[place] if place < len(steps) else None
                if number is not None and step is not None and step >= 0:
                    yield Row(step, f"{task}/{name}", number)
                elif number is not None:
                    account.refuse(NO_STEP, f"{task}/{name}, place {place + 1}")


def _checkpoint(entry: Any) -> int | None:
    step = whole(str(entry))
    return step_in(str(entry)) if step is None else step


FORMAT = Format("lm_eval", "lm-evaluation-harness", recognise, read, together="checkpoints")
AGGREGATE = Format("lm_eval_columns", "checkpoints by tasks, in columns", recognise_aggregate, read_aggregate)
